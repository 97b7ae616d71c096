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

	heard    latest      // when the latest answered request was sent
	acquires latest      // the same, of requests for locks only
	missing  atomic.Bool // since is set

	mu    sync.Mutex
	since time.Time // of the first request that failed after the last that was answered
	told  bool
	err   error
	news  []func() // to be told; the first is being so
}

// hear notes that the store answered what was sent at sent.
func (s *Session) hear(sent time.Time) {
	o := &s.outage
	o.heard.raise(s.instant(sent))
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
		s.tellLater(func() {
			o.log.Info("leasehold: the store answers again", "away", away)
			o.tell(over)
		})
	}
	o.mu.Unlock()
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
		s.tellLater(func() {
			o.log.Warn("leasehold: the store does not answer", "error", err)
			o.tell(now)
		})
	}
	o.mu.Unlock()
}

// tellLater has f run behind what was to be told before. The renewals whose answers
// brought the news wait for no logger and no observer. A session that has ended tells no
// more. The caller holds mu, by which all is told in the order in which it came about.
func (s *Session) tellLater(f func()) {
	o := &s.outage
	if o.news = append(o.news, f); len(o.news) > 1 {
		return // they are being told
	}
	if !s.enterUnlessEnded() {
		o.news = nil
		return
	}
	go func() {
		defer s.Leave()
		for ; f != nil; f = o.next() {
			f()
		}
	}()
}

// next returns what is to be told behind what has been, nil without.
func (o *outage) next() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news = o.news[1:]; len(o.news) == 0 {
		return nil
	}
	return o.news[0]
}

// latest is the latest of several instants. It is safe for concurrent use.
type latest struct{ at atomic.Int64 }

// raise stores at if it is later.
func (l *latest) raise(at clock.Instant) {
	for old := l.at.Load(); int64(at) > old && !l.at.CompareAndSwap(old, int64(at)); old = l.at.Load() {
	}
}

// since returns the later of began and the stored instant.
func (l *latest) since(s *Session, began time.Time) time.Time {
	if at := clock.Instant(l.at.Load()); at > s.instant(began) {
		return s.time(at)
	}
	return began
}
