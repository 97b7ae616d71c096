package session

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestOutage_TheEndIsToldBehindTheBeginning: a slow observer gets the beginning first, and delays
// no caller.
func TestOutage_TheEndIsToldBehindTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over []bool
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), func(o Outage) {
			if !o.Over {
				time.Sleep(time.Second)
			}
			over = append(over, o.Over)
		})
		s.unanswered(t.Context(), s.Now(), driver.ErrUnavailable)
		time.Sleep(timing.OutageAfter)
		began := s.Now()
		s.unanswered(t.Context(), began, driver.ErrUnavailable)
		s.answered(s.Now())
		if took := s.Now().Sub(began); took > 0 {
			t.Errorf("an observer held the store's answer up for %v", took)
		}
		s.Close()
		if len(over) != 2 || over[0] || !over[1] {
			t.Errorf("observed the ends %v, want false and true", over)
		}
	})
}

// counting counts log lines.
type counting struct{ lines *atomic.Int32 }

func (counting) Enabled(context.Context, slog.Level) bool { return true }

func (c counting) Handle(context.Context, slog.Record) error {
	c.lines.Add(1)
	return nil
}

func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c counting) WithGroup(string) slog.Handler { return c }

// TestOutage_IsToldOnceEachWay: after a second without an answer, counted from the first request
// that failed, and at the next answer. Its events and lines must not outlive the session, because
// the test or program owns the logger and the observer.
func TestOutage_IsToldOnceEachWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Outage
		var lines atomic.Int32
		s := New(memdriver.New(), slog.New(counting{&lines}), func(o Outage) { told = append(told, o) })
		defer s.Close()
		begin := s.Now()
		heard := func(n int) {
			t.Helper()
			if synctest.Wait(); len(told) != n || int(lines.Load()) != n {
				t.Fatalf("observed %d times after %v, with %d lines, want %d: %+v", len(told), s.Now().Sub(begin), lines.Load(), n, told)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.unanswered(ended, begin.Add(-time.Hour), errReset)
		s.unanswered(t.Context(), begin.Add(-time.Hour), driver.ErrInvalid)
		s.unanswered(t.Context(), begin, errReset)
		time.Sleep(timing.OutageAfter - 1)
		s.unanswered(t.Context(), s.Now(), errReset)
		heard(0)
		time.Sleep(time.Nanosecond)
		s.unanswered(t.Context(), s.Now(), driver.ErrUnavailable)
		heard(1)
		time.Sleep(time.Second)
		s.unanswered(t.Context(), s.Now(), errReset)
		heard(1)
		s.answered(s.Now())
		heard(2)
		s.answered(s.Now())
		heard(2)
		for i, want := range []Outage{{Err: driver.ErrUnavailable}, {Err: errReset, Over: true}} {
			if o := told[i]; !errors.Is(o.Err, want.Err) || o.Over != want.Over || o.Since.Sub(begin).Abs() > ms {
				t.Errorf("observed %+v, which began at %v", o, begin)
			}
		}
		// Another outage counts from its own beginning.
		again := s.Now()
		s.unanswered(t.Context(), again, errReset)
		time.Sleep(timing.OutageAfter - 1)
		s.unanswered(t.Context(), s.Now(), errReset)
		heard(2)
		time.Sleep(time.Nanosecond)
		s.unanswered(t.Context(), s.Now(), errReset)
		if heard(3); told[2].Over || !told[2].Since.Equal(again) {
			t.Errorf("told %+v", told[2])
		}
		// A short outage is not reported at all.
		s.answered(s.Now())
		heard(4)
		s.unanswered(t.Context(), s.Now(), errReset)
		s.answered(s.Now())
		heard(4)
		s.unanswered(t.Context(), s.Now(), errReset)
		time.Sleep(timing.OutageAfter)
		s.unanswered(t.Context(), s.Now(), errReset)
		heard(5)
		s.Close()
		s.answered(s.Now()) // a renewal may be answered while the session ends
		heard(5)
		s.unanswered(t.Context(), begin, errReset)
		if heard(5); s.outage.missing.Load() {
			t.Error("a session that ends missed something")
		}
	})
}

// TestUndo_IsRepeatedUntilItIsAnsweredOrOver: less and less often, each try for a third of the
// release timeout, at most for the life of the lease that may be in the store, and once if a
// request may be on its way.
func TestUndo_IsRepeatedUntilItIsAnsweredOrOver(t *testing.T) {
	for _, c := range []struct {
		name       string
		store      []any
		unanswered bool
		ttl, life  time.Duration
		times      []time.Duration // at most so late, and at most a tenth earlier
		last       time.Duration
		lines      int32 // in the log
	}{
		{name: "answered", store: []any{driver.Reply{}}, ttl: time.Minute, times: []time.Duration{0}},
		{name: "answered for a ticket", store: []any{driver.Reply{}}, unanswered: true, life: time.Minute, times: []time.Duration{0}},
		{name: "refused for good", store: []any{driver.ErrInvalid}, ttl: time.Minute, times: []time.Duration{0}, lines: 1},
		{name: "lost twice", store: []any{errReset, errReset, driver.Reply{}}, ttl: time.Minute, times: []time.Duration{0, 20 * ms, 60 * ms}},
		{name: "lost for the life of the lease", store: []any{errReset}, ttl: time.Minute, life: time.Second, last: time.Minute, lines: 1},
		{name: "lost for the life of the ticket", store: []any{errReset}, ttl: time.Second, life: 15 * time.Second, last: 15 * time.Second, lines: 1},
	} {
		d := &script{release: answersTo(c.store...)}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			req := &driver.Request{Key: "k", ID: "a", TTL: c.ttl, TicketTTL: c.life, Visit: "v"}
			var lines atomic.Int32
			terms := usual()
			terms.Log = slog.New(counting{&lines})
			s.Undo(t.Context(), terms, req, c.unanswered)
			synctest.Wait()
			if answered := locked(&s.undoing.mu, func() bool { return s.undoing.answered }); answered != isReply(c.store[0]) {
				t.Errorf("it was answered: %v", answered)
			}
			time.Sleep(time.Hour)
			if busy := locked(&s.undoing.mu, func() int { return s.undoing.busy }); busy != 0 || lines.Load() != c.lines {
				t.Errorf("%d are under way, %d lines in the log", busy, lines.Load())
			}
			all := d.of("release")
			for i, q := range all {
				if c.times != nil && (len(all) != len(c.times) || q.at > c.times[i] || q.at < c.times[i]*9/10) || q.limit != 5*time.Second/3 ||
					q.ref.Visit != "v" || (q.ref.RejectIDFor == timing.ForbidFor) != c.unanswered || !c.unanswered && q.ref.RejectIDFor != 0 {
					t.Errorf("%d: asked at %v for %v by %+v", i, q.at, q.limit, q.ref)
				}
			}
			if last := all[len(all)-1].at; c.last > 0 && (last < c.last || last > c.last+2*time.Second) {
				t.Errorf("asked last at %v, want %v", last, c.last)
			}
		})
	}
}

// TestUndo_AtAClose: the undo ends within about a release timeout. The close ends a pause of the
// undo early, and an undo that is queued at the limiter starts at once.
func TestUndo_AtAClose(t *testing.T) {
	for _, full := range []bool{false, true} {
		d := &script{release: answersTo(driver.ErrUnavailable)}
		stage(t, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.ReleaseTimeout = 2 * time.Second
			if full {
				fill(&s.undoing)
				s.undoing.probes = -1 << 20
			}
			var tried atomic.Int32
			s.GiveBack(t.Context(), terms, &Abandoned{Ref: driver.Ref{Key: "k", ID: "a"}, Life: time.Hour, Tried: func() { tried.Add(1) }})
			if synctest.Wait(); full != (tried.Load() == 0) {
				t.Errorf("the first try was reported %d times", tried.Load())
			}
			time.Sleep(100 * ms)
			n := len(d.of("release"))
			if full != (n == 0) {
				t.Errorf("asked %d times before the close", n)
			}
			_, _ = s.End()
			if took := time.Since(d.start); took < 2*time.Second || took > 3*time.Second || tried.Load() != 1 {
				t.Errorf("closed after %v, the first try was reported %d times", took, tried.Load())
			}
			if more := len(d.of("release")) - n; more < 5 || more > 30 {
				t.Errorf("asked %d times during the close", more)
			}
			s.GiveBack(t.Context(), terms, &Abandoned{Ref: driver.Ref{Key: "k", ID: "b"}, Life: time.Hour})
			synctest.Wait()
			for _, q := range d.of("release") {
				if q.ref.ID == "b" {
					t.Error("asked after the close")
				}
			}
		})
	}
}

// TestGiveBack_KeepsAPlaceThatIsToBeKept, and releases it if it is no longer a place.
func TestGiveBack_KeepsAPlaceThatIsToBeKept(t *testing.T) {
	for _, c := range []struct {
		name             string
		keep             time.Duration
		renew            []any
		renewed, release int
	}{
		{name: "nothing to keep", release: 1},
		{name: "kept", keep: time.Second, renew: []any{driver.Reply{State: driver.Queued}}, renewed: 1},
		{name: "kept for the shortest time", keep: 1, renew: []any{driver.Reply{State: driver.Queued}}, renewed: 1},
		{name: "kept in the end", keep: time.Second, renew: []any{errReset, driver.Reply{State: driver.Queued}}, renewed: 2},
		{name: "granted meanwhile", keep: time.Second, renew: []any{driver.Reply{State: driver.Granted}}, renewed: 1, release: 1},
	} {
		d := new(script)
		if c.renew != nil {
			d.renew = answersTo(c.renew...)
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			ref := driver.Ref{Key: "k", ID: "a", TTL: time.Minute, HintAddress: "here"}
			s.GiveBack(t.Context(), usual(), &Abandoned{Ref: ref, Life: time.Minute, Keep: c.keep})
			time.Sleep(time.Minute)
			if n, m := len(d.of("renew")), len(d.of("release")); n != c.renewed || m != c.release {
				t.Errorf("renewed %d times, released %d times", n, m)
			}
			for _, q := range d.of("renew") {
				if want := (driver.Ref{Key: "k", ID: "a", TTL: time.Minute, TicketTTL: c.keep, HintAddress: "here"}); q.ref != want {
					t.Errorf("kept by %+v", q.ref)
				}
			}
		})
	}
}
