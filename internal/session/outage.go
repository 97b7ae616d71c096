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

// Outage is a period in which all of a session's requests to the store fail.
type Outage struct {
	Since time.Time // by [time.Now]
	// Err is the last error.
	Err error
	// Over reports whether the store answers again.
	Over bool
}

// outage detects that a store does not answer for a while, and reports the beginning and
// the end of that, once each.
type outage struct {
	log  *slog.Logger
	tell func(Outage)

	heard    latest      // when the latest answered request was sent
	acquires latest      // when the latest answered lock request was sent
	missing  atomic.Bool // since is set

	mu       sync.Mutex
	since    time.Time // when the first failed request since the last answer was sent
	reported bool
	err      error
	news     []func() // reports to deliver; the first is being delivered
}

// answered records that the store answered a request that was sent at sent.
func (s *Session) answered(sent time.Time) {
	o := &s.outage
	o.heard.raise(s.instant(sent))
	if !o.missing.Load() {
		return
	}
	o.mu.Lock()
	since, over := o.since, Outage{Since: clock.Local(o.since), Err: o.err, Over: true}
	reported := o.reported
	o.since, o.reported, o.err = time.Time{}, false, nil
	o.missing.Store(false)
	if reported {
		away := s.Now().Sub(since).Round(time.Millisecond)
		s.tellLater(func() {
			o.log.Info("leasehold: the store answers again", "away", away)
			o.tell(over)
		})
	}
	o.mu.Unlock()
}

// unanswered records that a request that was sent at sent was not answered. If ctx has ended,
// or if the error is permanent, the store is not to blame.
func (s *Session) unanswered(ctx context.Context, sent time.Time, err error) {
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
	begins := !o.reported && s.Now().Sub(o.since) >= timing.OutageAfter
	o.reported = o.reported || begins
	now := Outage{Since: clock.Local(o.since), Err: err}
	if begins {
		s.tellLater(func() {
			o.log.Warn("leasehold: the store does not answer", "error", err)
			o.tell(now)
		})
	}
	o.mu.Unlock()
}

// tellLater queues f behind earlier reports and runs it in a goroutine, so that renewals
// do not wait for the logger or observer. It drops the report if the session has ended. The
// caller holds mu, which keeps the reports in order.
func (s *Session) tellLater(f func()) {
	o := &s.outage
	if o.news = append(o.news, f); len(o.news) > 1 {
		return // a goroutine is delivering
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

// next removes the delivered report and returns the following one, or nil.
func (o *outage) next() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news = o.news[1:]; len(o.news) == 0 {
		return nil
	}
	return o.news[0]
}

// latest holds the latest of several instants. It is safe for concurrent use.
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
