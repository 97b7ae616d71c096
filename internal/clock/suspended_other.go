//go:build !linux

package clock

import "time"

// suspended is zero where the monotonic clock runs on during suspension, or
// where the system does not tell.
func suspended() time.Duration { return 0 }
