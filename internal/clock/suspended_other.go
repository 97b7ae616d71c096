//go:build !linux

package clock

import "time"

// suspended returns 0: the monotonic clock runs on during suspension, or the system does
// not report the suspension.
func suspended() time.Duration { return 0 }
