//go:build unix

package history

import "golang.org/x/sys/unix"

// Now reads the kernel's monotonic clock, which all processes of the machine
// share.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // there is no system without it
	}
	return now.Nano()
}
