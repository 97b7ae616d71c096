package filedriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// The mark is part of the epoch file. Like the locks, it is lost with the directory and at
// the next boot.

// Marked returns the mark with which a quorum detects that the directory has lost its
// data. See [driver.Marker].
func (s *Driver) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	var now epoch
	err = s.clock.update(ctx, func(e *epoch) (bool, error) {
		now = *e
		return false, s.clock.checkBoot(e)
	})
	if err != nil || now.Mark == 0 {
		return driver.Mark{}, false, err
	}
	left := time.Duration(now.Mark-s.clock.read()) * time.Microsecond
	return driver.Mark{Name: now.Name, Quarantine: max(left, 0)}, true, nil
}

// Reserve keeps a directory without a mark for the process that is about to mark it, for
// life at most. See [driver.Marker].
func (s *Driver) Reserve(ctx context.Context, by string, life time.Duration) (reserved bool, err error) {
	err = s.clock.update(ctx, func(e *epoch) (bool, error) {
		if err := s.clock.checkBoot(e); err != nil || e.Mark != 0 {
			return false, err
		}
		now := e.Origin + s.clock.elapsed()
		if other := e.reservation(now); other != "" && other != by {
			return false, nil
		}
		e.For, e.Until, reserved = by, now+life.Microseconds(), true
		return true, nil
	})
	return reserved && err == nil, err
}

// Mark marks the directory unless it has a mark. See [driver.Marker].
func (s *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	return s.clock.update(ctx, func(e *epoch) (bool, error) {
		if err := s.clock.checkBoot(e); err != nil || e.Mark != 0 {
			return false, err
		}
		now := e.Origin + s.clock.elapsed()
		if by != "" && by != e.reservation(now) {
			return false, nil
		}
		e.Mark, e.Name, e.For, e.Until = now+mark.Quarantine.Microseconds(), mark.Name, "", 0
		return true, nil
	})
}

// reservation returns the process for which the directory is reserved, or "".
func (e *epoch) reservation(now int64) string {
	if now >= e.Until {
		return ""
	}
	return e.For
}

// servesGuarded reports whether the mark allows guarded requests of unknown keys.
func (c *bootClock) servesGuarded(now int64) bool {
	e, err := c.load()
	return err == nil && e.Boot == c.machine.boot && e.Mark != 0 && e.Mark <= now
}
