package filedriver

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/driver"
)

// clockMonotonicRaw counts sleep and is not adjusted (mach_continuous_time).
const clockMonotonicRaw = 4

func thisMachine() (machine, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return machine{}, unavailable("cannot distinguish this boot from an earlier one; use another store", err)
	}
	return machine{
		boot: boot,
		elapsed: func() time.Duration {
			var ts unix.Timespec
			// It cannot fail: the clock exists since macOS 10.12.
			_ = unix.ClockGettime(clockMonotonicRaw, &ts)
			return time.Duration(ts.Nano())
		},
		wall: time.Now,
	}, nil
}

// checkLocal refuses known network file systems.
func checkLocal(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return unavailable(dir, err)
	}
	if fs.Flags&unix.MNT_LOCAL == 0 {
		return fmt.Errorf("%s is on a network file system, whose machines share no clock: take a local directory, or a Redis store: %w", dir, driver.ErrInvalid)
	}
	return nil
}
