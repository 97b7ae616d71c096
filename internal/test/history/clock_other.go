//go:build !unix

package history

import "time"

var start = time.Now()

// Now counts from the start of this process: histories of several processes
// cannot be compared on this system.
func Now() int64 { return int64(time.Since(start)) + 1 }
