package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestOnward_PassesOnWhatIsLeftOfAWritersLease, and of no other.
func TestOnward_PassesOnWhatIsLeftOfAWritersLease(t *testing.T) {
	for name, change := range map[string]func(*Hold){
		"a writer's": nil, "a reader's": func(h *Hold) { h.mode, h.reader = driver.Shared, true }, "one that is lowered here": func(h *Hold) { h.mode = driver.Shared },
		"one that may be lowered": func(h *Hold) { h.lowering = 1 }, "one whose lowering was not answered": func(h *Hold) { h.unsure = true },
		"one that is a reader's in the store": func(h *Hold) { h.reader = true },
	} {
		stage(t, new(script), func(t *testing.T, s *Session) {
			h := take(t, s, &user{terms: usual()})
			time.Sleep(5 * time.Second)
			if change != nil {
				change(h)
			}
			h.unanswered = true
			g, ok := h.Onward()
			if ok != (change == nil) || !g.Origin.Round(0).Equal(h.Granted().Round(0)) || g.Token != h.Token() || !g.Unanswered {
				t.Errorf("%s is passed on: %v, by %+v, granted at %v", name, ok, g, h.Granted())
			}
			for _, at := range []struct {
				later  time.Duration
				usable bool
			}{{0, true}, {24698*ms - 1, true}, {1, false}} {
				if time.Sleep(at.later); s.Usable(usual(), &g) != at.usable {
					t.Errorf("%v after it was granted it is usable: %v", h.Held(), !at.usable)
				}
			}
		})
	}
}

// TestProlong_AsksOnce.
func TestProlong_AsksOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		store any
		slow  time.Duration
		want  []error
		not   []error
	}{
		{name: "granted", store: driver.Reply{State: driver.Granted}, slow: 29697 * ms},
		{name: "granted too late", store: driver.Reply{State: driver.Granted}, slow: 29698 * ms, want: []error{timing.ErrLate}},
		{name: "gone", store: driver.Reply{State: driver.Gone}, want: []error{ErrGone, ErrLost}},
		{name: "broken", store: driver.Reply{Broken: true}, want: []error{ErrBroken, ErrLost}},
		{name: "lost", store: errReset, want: []error{ErrUnknown, errReset}},
		{name: "refused", store: driver.ErrUnavailable, want: []error{driver.ErrUnavailable}, not: []error{ErrUnknown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := answers(c.store)
			d := &script{renew: func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
				time.Sleep(c.slow)
				return store(ctx, n, nil)
			}}
			stage(t, d, func(t *testing.T, s *Session) {
				g, err := s.Prolong(t.Context(), usual(), driver.Ref{Key: "k", ID: "a"}, time.Minute)
				if (err == nil) != (len(c.want) == 0) || err == nil && !g.Origin.Round(0).Equal(d.start.Round(0)) {
					t.Errorf("%+v, %v", g, err)
				}
				matches(t, err, c.want, c.not)
				if asked := d.of("renew"); len(asked) != 1 || asked[0].limit != time.Minute {
					t.Errorf("asked %+v", asked)
				}
			})
		})
	}
}

// TestRenew_StoreThatSaysNothingIsNoAnswer.
func TestRenew_StoreThatSaysNothingIsNoAnswer(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		s.drv = silent{s.drv}
		if _, err := s.Prolong(t.Context(), usual(), driver.Ref{Key: "k", ID: "a"}, time.Minute); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	})
}

// silent says nothing of what it is asked.
type silent struct{ driver.Driver }

func (silent) Renew(context.Context, []driver.Ref, func(int, driver.Reply, error)) {}
