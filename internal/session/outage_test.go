package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/memdriver"
)

// A renewal may be answered while the session ends. What is logged of it would outlive
// the session, and the test or program whose logger it is.
func TestOutage_NothingIsLoggedBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines atomic.Int32
		s := New(memdriver.New(), slog.New(counting{&lines}), nil)
		sent := s.Now()
		s.miss(t.Context(), sent, driver.ErrUnavailable)
		time.Sleep(timing.OutageAfter)
		s.miss(t.Context(), s.Now(), driver.ErrUnavailable)
		synctest.Wait()
		if n := lines.Load(); n != 1 {
			t.Fatalf("%d lines of the beginning", n)
		}
		s.Close()
		s.hear(s.Now())
		synctest.Wait()
		if n := lines.Load(); n != 1 {
			t.Errorf("%d lines at the end", n)
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
		if since := s.answeredSince(began); !since.Equal(fast) {
			t.Errorf("answered %v after the beginning, want %v", since.Sub(began), fast.Sub(began))
		}
	})
}
