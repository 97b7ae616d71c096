package filedriver

import (
	"context"
	"time"
)

// The mark stands in the epoch file, and so is lost with the directory and when
// the machine starts anew, as the locks are.

// Marked implements [driver.Marker].
func (s *Store) Marked(ctx context.Context) (quarantine time.Duration, ok bool, err error) {
	var mark int64
	err = s.clock.update(ctx, func(e *epoch) (bool, error) {
		mark = e.Mark
		return false, s.clock.own(e)
	})
	if err != nil || mark == 0 {
		return 0, false, err
	}
	left := time.Duration(mark-s.clock.read()) * time.Microsecond
	return max(left, 0), true, nil
}

// Mark implements [driver.Marker].
func (s *Store) Mark(ctx context.Context, quarantine time.Duration) error {
	return s.clock.update(ctx, func(e *epoch) (bool, error) {
		if err := s.clock.own(e); err != nil || e.Mark != 0 {
			return false, err
		}
		e.Mark = e.Origin + s.clock.elapsed() + quarantine.Microseconds()
		return true, nil
	})
}

// marked reports whether guarded requests of unknown keys are served.
func (c *clock) marked(now int64) bool {
	e, err := c.load()
	return err == nil && e.Boot == c.machine.boot && e.Mark != 0 && e.Mark <= now
}
