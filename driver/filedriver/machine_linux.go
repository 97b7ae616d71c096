package filedriver

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/driver"
)

// thisMachine counts by CLOCK_BOOTTIME, which goes on during suspension. In a time
// namespace the clock is shifted; thisMachine undoes the shift, so that containers of one
// kernel agree.
func thisMachine() (machine, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return machine{}, unavailable("cannot distinguish this boot from an earlier one; use another store", err)
	}
	shift := timeNamespace()
	return machine{
		boot: strings.TrimSpace(string(boot)),
		elapsed: func() time.Duration {
			var ts unix.Timespec
			// It cannot fail: the clock exists since Linux 2.6.39.
			_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
			return time.Duration(ts.Nano()) - shift
		},
		wall: time.Now,
	}, nil
}

// timeNamespace returns the shift of CLOCK_BOOTTIME in this namespace.
func timeNamespace() time.Duration {
	raw, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		var name string
		var sec, nsec int64
		if n, _ := fmt.Sscan(line, &name, &sec, &nsec); n == 3 && name == "boottime" {
			return time.Duration(sec)*time.Second + time.Duration(nsec)
		}
	}
	return 0
}

// remote holds the magic numbers of network file systems.
var remote = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS", unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS",
	unix.CODA_SUPER_MAGIC: "Coda", unix.CEPH_SUPER_MAGIC: "Ceph", unix.NCP_SUPER_MAGIC: "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2",
}

// checkLocal refuses known network file systems.
func checkLocal(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return unavailable(dir, err)
	}
	// The field is signed and of different width on different processors.
	if name, ok := remote[int64(uint32(fs.Type))]; ok { //nolint:gosec // the magic has 32 bits
		return fmt.Errorf("%s is on a network file system (%s), whose machines share no clock: take a local directory, or a Redis store: %w", dir, name, driver.ErrInvalid)
	}
	return nil
}
