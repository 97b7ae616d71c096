package filedriver

import (
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	"github.com/leasehold-go/leasehold/driver"
)

// interruptTime counts sleep, in units of 100 ns (Windows 10 and later).
var interruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTimePrecise")

func thisMachine() (machine, error) {
	if err := interruptTime.Find(); err != nil {
		return machine{}, unavailable("no clock that counts sleep; use another store", err)
	}
	boot, err := bootNumber()
	if err != nil {
		return machine{}, unavailable("cannot distinguish this boot from an earlier one; use another store", err)
	}
	return machine{
		boot: "boot-" + strconv.FormatUint(boot, 10),
		elapsed: func() time.Duration {
			var ticks uint64
			_, _, _ = interruptTime.Call(uintptr(unsafe.Pointer(&ticks)))
			return time.Duration(ticks) * 100 //nolint:gosec // 292 years fit
		},
		wall: time.Now,
	}, nil
}

// bootNumber is counted up by Windows at every start.
func bootNumber() (uint64, error) {
	const path = `SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters`
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE)
	if err != nil {
		return 0, err
	}
	defer key.Close()
	n, _, err := key.GetIntegerValue("BootId")
	return n, err
}

// checkLocal refuses known network file systems.
func checkLocal(dir string) error {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", dir, driver.ErrInvalid, err)
	}
	var root [windows.MAX_PATH + 1]uint16
	if err := windows.GetVolumePathName(name, &root[0], uint32(len(root))); err != nil {
		return unavailable(dir, err)
	}
	if windows.GetDriveType(&root[0]) == windows.DRIVE_REMOTE {
		return fmt.Errorf("%s is on a network drive, whose machines share no clock: take a local directory, or a Redis store: %w", dir, driver.ErrInvalid)
	}
	return nil
}
