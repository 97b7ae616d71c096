package filedriver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// maxChecked bounds how many records Check reads.
const maxChecked = 2000

// Check reports which users may change the directory, how far the store's clock is from
// the wall clock, and damaged records, of which it reads at most 2000. [Open] has checked
// the file system and the file locks already. See [driver.Checker].
func (s *Driver) Check(ctx context.Context) (driver.Report, error) {
	var c doctor.Checkup
	c.Nodes = []driver.Node{{Server: s.machine.boot + " " + s.realPath()}}
	err := s.ready(ctx)
	if err == nil {
		c.Judge("directory", doctor.Good(s.tree.dir+" is on this machine, and its file locks have effect"))
		s.checkMode(&c)
		s.checkClock(&c)
		err = s.checkRecords(ctx, &c)
	}
	return c.Report, err
}

// realPath identifies a directory that has several names.
func (s *Driver) realPath() string {
	if path, err := filepath.EvalSymlinks(s.tree.dir); err == nil {
		return path
	}
	return s.tree.dir
}

// checkMode reports which other users may change the directory.
func (s *Driver) checkMode(c *doctor.Checkup) {
	const everybody, group = 0o002, 0o020
	for _, name := range []string{".", "locks", "rooms", "wake"} {
		info, err := s.tree.lstat(name)
		dir := s.tree.path(name)
		if err != nil {
			c.Found(driver.Unsafe, "permissions", "cannot be looked at: "+err.Error(), "its locks may be gone", "find out which program removes it")
			return
		}
		if mode := info.Mode().Perm(); mode&(everybody|group) != 0 {
			c.Judge("permissions",
				doctor.If(mode&everybody != 0, driver.Unsafe, "all users of this machine may write to "+dir, "any user may end or forge locks", "chmod o-w "+dir),
				doctor.If(true, driver.Notice, "the group of "+dir+" may write to it", "all its members are trusted", ""))
			return
		}
	}
	c.Judge("permissions", doctor.Good("only the owner may write"))
}

// checkClock compares the store's clock with the wall clock, for readers of its times.
func (s *Driver) checkClock(c *doctor.Checkup) {
	lead := time.Duration(s.clock.read()-s.machine.wall().UnixMicro()) * time.Microsecond
	c.Judge("clock", doctor.Good(fmt.Sprintf("counts the time since boot, which nobody sets, and is within %v of the wall clock",
		lead.Abs().Truncate(time.Millisecond)+time.Millisecond)))
}

// checkRecords reads the records, up to maxChecked.
func (s *Driver) checkRecords(ctx context.Context, c *doctor.Checkup) error {
	read, bad, first := 0, 0, error(nil)
	for cursor, more := "", true; more && read < maxChecked; more = cursor != "" {
		keys, next, err := s.List(ctx, "", cursor)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if _, err := s.Inspect(ctx, key); errors.Is(err, driver.ErrMismatch) {
				if bad++; first == nil {
					first = err
				}
			} else if err != nil {
				return err
			}
		}
		cursor, read = next, read+len(keys)
	}
	c.Judge("records",
		doctor.If(bad > 0, driver.Warning, fmt.Sprintf("%d cannot be read: %v", bad, first), "their locks cannot be taken", ""),
		doctor.Good(fmt.Sprintf("all %d can be read", read)))
	return nil
}
