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
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/memdriver"
)

// A renewal may be answered while the session ends. What is told of it would outlive
// the session, and the test or program whose logger and observer it is.
func TestOutage_NothingIsToldBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines, told atomic.Int32
		s := New(memdriver.New(), slog.New(counting{&lines}), func(Outage) { told.Add(1) })
		sent := s.Now()
		s.miss(t.Context(), sent, driver.ErrUnavailable)
		time.Sleep(timing.OutageAfter)
		s.miss(t.Context(), s.Now(), driver.ErrUnavailable)
		synctest.Wait()
		if l, n := lines.Load(), told.Load(); l != 1 || n != 1 {
			t.Fatalf("%d lines and %d events of the beginning", l, n)
		}
		s.Close()
		s.hear(s.Now())
		synctest.Wait()
		if l, n := lines.Load(), told.Load(); l != 1 || n != 1 {
			t.Errorf("%d lines and %d events at the end", l, n)
		}
	})
}

// An observer that takes its time hears of the beginning first, and holds nobody up.
func TestOutage_TheEndIsToldBehindTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over []bool
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), func(o Outage) {
			if !o.Over {
				time.Sleep(time.Second)
			}
			over = append(over, o.Over)
		})
		s.miss(t.Context(), s.Now(), driver.ErrUnavailable)
		time.Sleep(timing.OutageAfter)
		began := s.Now()
		s.miss(t.Context(), began, driver.ErrUnavailable)
		s.hear(s.Now())
		if took := s.Now().Sub(began); took > 0 {
			t.Errorf("an observer held the store's answer up for %v", took)
		}
		s.Close()
		if len(over) != 2 || over[0] || !over[1] {
			t.Errorf("told whether it was over: %v, want false and true", over)
		}
	})
}

// counting counts what is logged.
type counting struct{ lines *atomic.Int32 }

func (counting) Enabled(context.Context, slog.Level) bool { return true }
func (c counting) Handle(context.Context, slog.Record) error {
	c.lines.Add(1)
	return nil
}
func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c counting) WithGroup(string) slog.Handler      { return c }

// An answer that was long on its way would otherwise end the waits of others, whom the
// store has answered since.
func TestOutage_ALateAnswerTakesNoPatienceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), nil)
		defer s.Close()
		began := s.Now()
		time.Sleep(time.Second)
		slow := s.Now()
		time.Sleep(20 * time.Second)
		fast := s.Now()
		s.hear(fast)
		s.hear(slow)
		if since := s.outage.heard.since(s, began); !since.Equal(fast) {
			t.Errorf("answered %v after the beginning, want %v", since.Sub(began), fast.Sub(began))
		}
	})
}

// TestOutage_IsToldOnceEachWay: after a second in which nothing was answered, counted from
// the sending of what failed first, and when something is answered again.
func TestOutage_IsToldOnceEachWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Outage
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), func(o Outage) { told = append(told, o) })
		defer s.Close()
		begin := s.Now()
		heard := func(n int) {
			t.Helper()
			if synctest.Wait(); len(told) != n {
				t.Fatalf("told %d times after %v, want %d: %+v", len(told), s.Now().Sub(begin), n, told)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.miss(ended, begin.Add(-time.Hour), errReset)
		s.miss(t.Context(), begin.Add(-time.Hour), driver.ErrInvalid)
		s.miss(t.Context(), begin, errReset)
		time.Sleep(timing.OutageAfter - 1)
		s.miss(t.Context(), s.Now(), errReset)
		heard(0)
		time.Sleep(time.Nanosecond)
		s.miss(t.Context(), s.Now(), driver.ErrUnavailable)
		heard(1)
		time.Sleep(time.Second)
		s.miss(t.Context(), s.Now(), errReset)
		heard(1)
		s.hear(s.Now())
		heard(2)
		s.hear(s.Now())
		heard(2)
		for i, want := range []Outage{{Err: driver.ErrUnavailable}, {Err: errReset, Over: true}} {
			if o := told[i]; !errors.Is(o.Err, want.Err) || o.Over != want.Over || o.Since.Sub(begin).Abs() > ms {
				t.Errorf("told %+v, which began at %v", o, begin)
			}
		}
		// Another one counts from its own beginning.
		again := s.Now()
		s.miss(t.Context(), again, errReset)
		time.Sleep(timing.OutageAfter - 1)
		s.miss(t.Context(), s.Now(), errReset)
		heard(2)
		time.Sleep(time.Nanosecond)
		s.miss(t.Context(), s.Now(), errReset)
		if heard(3); told[2].Over || !told[2].Since.Equal(again) {
			t.Errorf("told %+v", told[2])
		}
		// A short one is told of in no way.
		s.hear(s.Now())
		heard(4)
		s.miss(t.Context(), s.Now(), errReset)
		s.hear(s.Now())
		heard(4)
		go s.Close()
		synctest.Wait()
		s.miss(t.Context(), begin, errReset)
		if heard(4); s.outage.missing.Load() {
			t.Error("a session that ends missed something")
		}
	})
}

// TestOutage_PatienceCountsFromTheLatestAnswer, or from the beginning.
func TestOutage_PatienceCountsFromTheLatestAnswer(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		begin := s.Now()
		s.hear(begin)
		for _, c := range []struct{ began, want time.Duration }{{0, 0}, {time.Second, time.Second}, {-time.Second, 0}} {
			if got := s.outage.heard.since(s, begin.Add(c.began)).Sub(begin); got != c.want {
				t.Errorf("began at %v: it counts from %v, want %v", c.began, got, c.want)
			}
		}
		// What the store does not answer takes none, and what it does gives some.
		for _, c := range []struct {
			store any
			heard bool
		}{{errReset, false}, {driver.Reply{State: driver.Gone}, true}} {
			time.Sleep(time.Second)
			sent := s.Now()
			s.drv.(*script).renew = answersTo(c.store)
			_, _ = s.Prolong(t.Context(), usual(), driver.Ref{Key: "k", ID: "a"}, time.Second)
			if got := s.outage.heard.since(s, begin); got.Equal(sent) != c.heard || s.outage.missing.Load() == c.heard {
				t.Errorf("after %v it counts from %v", c.store, got.Sub(begin))
			}
		}
	})
}
