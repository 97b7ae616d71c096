package roomdriver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/room"
)

// Drivers that write records also remove expired records. Each driver sweeps soon after
// its first record, so that short-lived programs contribute, and then from time to time
// until its own records are over.
const (
	sweepLimit   = 1000            // records removed by one sweep
	sweepAgain   = time.Second     // after a sweep that found much
	sweepTimeout = 5 * time.Second // of one sweep
)

// sweeps runs the sweeps of a driver.
type sweeps struct {
	d      *Driver
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	timer  *time.Timer // nil while no sweep is to come
	last   time.Time   // when the last record that was written may be forgotten
	closed bool

	cursor string    // where the next sweep goes on; of the sweep under way
	began  time.Time // when the first of the sweeps through the whole table began; likewise
}

// expect notes that a written record may be removed after ms milliseconds.
func (s *sweeps) expect(ms int64) {
	if s.d.cfg.interval <= 0 {
		return
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if end.After(s.last) {
		s.last = end
	}
	if s.timer == nil && !s.closed {
		s.later(0)
	}
}

// later schedules a sweep. The caller holds mu.
func (s *sweeps) later(pause time.Duration) {
	s.work.Add(1)
	s.timer = time.AfterFunc(pause, func() {
		defer s.work.Done()
		s.run()
	})
}

// run sweeps once and decides when the next sweep comes.
func (s *sweeps) run() {
	ctx, cancel := context.WithTimeout(s.ctx, sweepTimeout)
	defer cancel()
	if s.cursor == "" {
		s.began = time.Now()
	}
	more, err := s.d.sweep(ctx, &s.cursor)
	interval := s.d.cfg.interval
	pause := interval - rand.N(interval/4+1) // processes that began together do not stay so
	if more && err == nil {
		pause = min(pause, sweepAgain)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if done := !more && s.began.After(s.last.Add(interval)); !s.closed && !done {
		s.later(pause)
	}
}

// close ends the sweep under way and waits for it.
func (s *sweeps) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.work.Done()
	}
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}

// sweep removes a bounded number of records, and reports whether there may be
// more.
func (d *Driver) sweep(ctx context.Context, cursor *string) (more bool, err error) {
	if s, ok := d.table.(Sweeper); ok {
		removed, err := s.Sweep(ctx, sweepLimit)
		if removed > 0 && ctx.Err() != nil {
			return true, nil // the time did not suffice
		}
		return removed >= sweepLimit, err
	}
	page, err := d.table.List(ctx, "", *cursor)
	if err != nil {
		*cursor = ""
		return false, err
	}
	*cursor = page.Next
	for _, e := range page.Entries {
		if isOver(e.Record, page.Now) {
			if err := d.forget(ctx, e.Key); err != nil {
				return false, err
			}
		}
	}
	return page.Next != "", nil
}

// forget removes a record if it may be forgotten.
func (d *Driver) forget(ctx context.Context, key string) error {
	return d.table.Update(ctx, key, func(record []byte, now time.Time) ([]byte, error) {
		if isOver(record, now) {
			return nil, nil
		}
		return record, nil
	})
}

// isOver reports whether a record may be removed. Invalid records stay.
func isOver(record []byte, now time.Time) bool {
	end, err := room.End(record)
	return err == nil && end <= now.UnixMilli()
}
