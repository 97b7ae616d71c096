package filedriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// The mark stands in the epoch file, and so is lost with the directory and when
// the machine starts anew, as the locks are.

// Marked implements [driver.Marker].
func (s *Driver) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	var now epoch
	err = s.clock.update(ctx, func(e *epoch) (bool, error) {
		now = *e
		return false, s.clock.own(e)
	})
	if err != nil || now.Mark == 0 {
		return driver.Mark{}, false, err
	}
	left := time.Duration(now.Mark-s.clock.read()) * time.Microsecond
	return driver.Mark{Name: now.Name, Quarantine: max(left, 0)}, true, nil
}

// Reserve implements [driver.Marker].
func (s *Driver) Reserve(ctx context.Context, by string, life time.Duration) (reserved bool, err error) {
	err = s.clock.update(ctx, func(e *epoch) (bool, error) {
		if err := s.clock.own(e); err != nil || e.Mark != 0 {
			return false, err
		}
		now := e.Origin + s.clock.elapsed()
		if other := e.reservedFor(now); other != "" && other != by {
			return false, nil
		}
		e.For, e.Until, reserved = by, now+life.Microseconds(), true
		return true, nil
	})
	return reserved && err == nil, err
}

// Mark implements [driver.Marker].
func (s *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	return s.clock.update(ctx, func(e *epoch) (bool, error) {
		if err := s.clock.own(e); err != nil || e.Mark != 0 {
			return false, err
		}
		now := e.Origin + s.clock.elapsed()
		if by != "" && by != e.reservedFor(now) {
			return false, nil
		}
		e.Mark, e.Name, e.For, e.Until = now+mark.Quarantine.Microseconds(), mark.Name, "", 0
		return true, nil
	})
}

// reservedFor is for whom the directory is reserved, if it is.
func (e *epoch) reservedFor(now int64) string {
	if now >= e.Until {
		return ""
	}
	return e.For
}

// marked reports whether guarded requests of unknown keys are served.
func (c *clock) marked(now int64) bool {
	e, err := c.load()
	return err == nil && e.Boot == c.machine.boot && e.Mark != 0 && e.Mark <= now
}
