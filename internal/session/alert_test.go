package session

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// deafAtFirst is a store whose first subscription fails after a while.
type deafAtFirst struct {
	*memdriver.Driver
	asked int
}

func (d *deafAtFirst) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	if d.asked++; d.asked == 1 {
		time.Sleep(5 * time.Second)
		return nil, errors.New("not now")
	}
	return d.Driver.Watch(f)
}

// A waiter may be about to open the subscription when a holder wants it, and fail.
func TestAlert_ListensAfterSomebodyElseCouldNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deafAtFirst{Driver: memdriver.New()}
		s := New(d, slog.New(slog.DiscardHandler), nil)
		defer s.Close()
		h := &Hold{s: s, id: "a", granted: s.instant(s.Now())}
		if err := s.register(h); err != nil {
			t.Fatal(err)
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.holds, h.id) // it is no lease that could be given back
		}()
		s.Listen()
		time.Sleep(alertAfter + alertAgain + time.Second)
		synctest.Wait()
		if s.Address() == "" || d.asked != 2 {
			t.Errorf("hears at %q after %d subscriptions", s.Address(), d.asked)
		}
	})
}

// TestAlert_ListensOnceALeaseIsHeldForASecond, whatever leases come and go beside it.
func TestAlert_ListensOnceALeaseIsHeldForASecond(t *testing.T) {
	type held struct{ from, to time.Duration }
	for _, c := range []struct {
		name  string
		holds []held
		fail  []error
		want  []time.Duration
		lines int32
	}{
		{name: "for long", holds: []held{{0, time.Hour}}, want: []time.Duration{time.Second}},
		{name: "not for long", holds: []held{{0, 999 * ms}, {5 * time.Second, 5500 * ms}}},
		{name: "behind a short one", holds: []held{{0, 500 * ms}, {700 * ms, time.Hour}}, want: []time.Duration{1700 * ms}},
		{name: "several behind a short one", holds: []held{{0, 500 * ms}, {700 * ms, time.Hour}, {750 * ms, time.Hour}, {800 * ms, time.Hour}, {900 * ms, time.Hour}}, want: []time.Duration{1700 * ms}},
		{name: "after a time without any", holds: []held{{0, 500 * ms}, {5 * time.Second, time.Hour}}, want: []time.Duration{6 * time.Second}},
		{name: "while others are taken", holds: []held{{0, time.Hour}, {500 * ms, 600 * ms}, {900 * ms, 990 * ms}}, want: []time.Duration{time.Second}},
		{name: "of a store that does not serve it", holds: []held{{0, time.Hour}}, fail: []error{errors.ErrUnsupported}, want: []time.Duration{time.Second}},
		{name: "of a store that fails at first", holds: []held{{0, time.Hour}}, fail: []error{errReset}, want: []time.Duration{time.Second, 61 * time.Second}, lines: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &audible{fail: c.fail, address: "here"}
			onStage(t, d, func(t *testing.T, s *Session, lines *atomic.Int32) {
				for i, at := range c.holds {
					go func() {
						time.Sleep(at.from)
						terms := usual()
						terms.TTL, terms.NoRenewal = 2*time.Hour, true
						req := terms.request()
						req.ID = string(rune('a' + i))
						h := new(Hold)
						if err := s.Hold(h, req, Grant{Origin: s.Now()}, &user{terms: terms}); err != nil {
							t.Error(err)
						}
						time.Sleep(at.to - at.from)
						h.over(ErrGone)
					}()
				}
				time.Sleep(3 * time.Hour)
				if opened, _ := d.subscriptions(); !slices.Equal(opened, c.want) || lines.Load() != c.lines {
					t.Errorf("listens at %v, logs %d lines, want %v and %d", opened, lines.Load(), c.want, c.lines)
				}
			})
		})
	}
}

// TestAlert_IsNotForAStoreWithoutHintsNorAfterTheEnd.
func TestAlert_IsNotForAStoreWithoutHintsNorAfterTheEnd(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		take(t, s, &user{terms: usual()})
		if s.alert.timer != nil {
			t.Error("a timer is set")
		}
	})
	onStage(t, new(audible), func(t *testing.T, s *Session, _ *atomic.Int32) {
		take(t, s, &user{terms: usual()})
		_, _ = s.End()
		s.lookOut() // the timer may have rung at the same moment
		if s.busy != 0 {
			t.Errorf("%d calls are under way", s.busy)
		}
	})
}
