package session

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Outage is a time in which a store answers nothing that a session asks.
type Outage struct {
	Since time.Time // as [time.Now] tells it
	// Err is what failed last.
	Err error
	// Over tells that the store answers again.
	Over bool
}

// outage notices that a store does not answer for a while, and has that be told once
// when it begins and once when it ends.
type outage struct {
	log  *slog.Logger
	tell func(Outage)

	heard   atomic.Int64 // a clock.Instant: when the latest request was sent that was answered
	missing atomic.Bool  // since is set

	mu    sync.Mutex
	since time.Time // of the first request that failed after the last that was answered
	told  bool
	err   error
	lines []func() // to be logged; the first is being so
}

// hear notes that the store answered what was sent at sent.
func (s *Session) hear(sent time.Time) {
	o := &s.outage
	at := int64(s.instant(sent))
	for old := o.heard.Load(); at > old && !o.heard.CompareAndSwap(old, at); old = o.heard.Load() {
	}
	if !o.missing.Load() {
		return
	}
	o.mu.Lock()
	since, over := o.since, Outage{Since: clock.Local(o.since), Err: o.err, Over: true}
	told := o.told
	o.since, o.told, o.err = time.Time{}, false, nil
	o.missing.Store(false)
	if told {
		away := s.Now().Sub(since).Round(time.Millisecond)
		s.logLater(func() { o.log.Info("leasehold: the store answers again", "away", away) })
	}
	o.mu.Unlock()
	if told {
		o.tell(over)
	}
}

// miss notes that what was sent at sent was not answered. That ctx has ended, or that
// the request is refused for good, says nothing of the store.
func (s *Session) miss(ctx context.Context, sent time.Time, err error) {
	if ctx.Err() != nil || s.IsClosing() || timing.Permanent(err) {
		return
	}
	o := &s.outage
	o.mu.Lock()
	if o.since.IsZero() {
		o.since = sent
		o.missing.Store(true)
	}
	o.err = err
	begins := !o.told && s.Now().Sub(o.since) >= timing.OutageAfter
	o.told = o.told || begins
	now := Outage{Since: clock.Local(o.since), Err: err}
	if begins {
		s.logLater(func() { o.log.Warn("leasehold: the store does not answer", "error", err) })
	}
	o.mu.Unlock()
	if begins {
		o.tell(now)
	}
}

// logLater writes a line behind those before it. The renewals whose answers brought the
// news wait for no logger. A session that has ended logs no more. The caller holds mu, by
// which the lines are in the order of the news.
func (s *Session) logLater(line func()) {
	o := &s.outage
	if o.lines = append(o.lines, line); len(o.lines) > 1 {
		return // they are being written
	}
	if !s.enterUnlessEnded() {
		o.lines = nil
		return
	}
	go func() {
		defer s.Leave()
		for ; line != nil; line = o.next() {
			line()
		}
	}()
}

// next returns the line behind the one that has been written, nil without.
func (o *outage) next() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines = o.lines[1:]; len(o.lines) == 0 {
		return nil
	}
	return o.lines[0]
}

// answeredSince is the later of began and of when the store was asked last what it
// answered.
func (s *Session) answeredSince(began time.Time) time.Time {
	if heard := clock.Instant(s.outage.heard.Load()); heard > s.instant(began) {
		return s.time(heard)
	}
	return began
}
