package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine has been suspended since boot: the difference
// between CLOCK_BOOTTIME and CLOCK_MONOTONIC. Because of the order of the readings, a
// preemption between them can only reduce the result.
func suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano())
}
