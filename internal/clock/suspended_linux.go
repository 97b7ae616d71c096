package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine has been suspended since boot: what
// CLOCK_BOOTTIME counts and CLOCK_MONOTONIC does not. The order of the readings
// makes a preemption between them look like less suspension, never like more.
func suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano())
}
