package session

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestRelease_SaysWhatBecameOfTheLease, by the answer and by what came before it, and goes
// on in the background while the store may have it.
func TestRelease_SaysWhatBecameOfTheLease(t *testing.T) {
	gone := driver.Reply{State: driver.Gone}
	for _, c := range []struct {
		name   string
		store  []any
		lost   bool
		late   bool // it is released at its deadline
		limit  time.Duration
		change func(*Hold)
		min    time.Duration
		times  []time.Duration
		limits []time.Duration
		closed time.Duration // how long the key is kept closed
		reject bool
		goesOn bool
		want   []error
		not    []error
	}{
		{name: "in time", store: []any{driver.Reply{State: driver.Released}}, times: []time.Duration{0}, limits: []time.Duration{2 * time.Second}},
		{name: "is gone", store: []any{gone}, times: []time.Duration{0}, want: []error{ErrLost}, not: []error{ErrBroken}},
		{name: "is gone, as it was lost", store: []any{gone}, lost: true, times: []time.Duration{0}},
		{name: "is gone at its deadline", store: []any{gone}, late: true, times: []time.Duration{0}},
		{name: "was broken", store: []any{driver.Reply{Broken: true, Reason: "by hand"}}, times: []time.Duration{0}, want: []error{ErrLost, ErrBroken}},
		{name: "was broken, as it was lost", store: []any{driver.Reply{Broken: true}}, lost: true, times: []time.Duration{0}},
		{name: "is gone after a loss", store: []any{errReset, gone}, times: []time.Duration{0, 20 * ms}},
		{name: "is gone after a refusal", store: []any{driver.ErrUnavailable, gone}, times: []time.Duration{0, 20 * ms}, want: []error{ErrLost}},
		{name: "is refused for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, want: []error{driver.ErrInvalid}, not: []error{ErrUnknown}},
		{name: "is lost, then refused for good", store: []any{errReset, driver.ErrInvalid}, times: []time.Duration{0, 20 * ms}, want: []error{driver.ErrInvalid, ErrUnknown}},
		{
			name: "hangs", store: []any{nil}, goesOn: true, want: []error{ErrUnknown, context.DeadlineExceeded},
			times: []time.Duration{0, 2020 * ms, 3386667 * time.Microsecond, 4337778 * time.Microsecond, 5051852 * time.Microsecond},
		},
		{
			name: "is refused for so long", store: []any{driver.ErrUnavailable}, limit: 140 * ms, goesOn: true, want: []error{driver.ErrUnavailable}, not: []error{ErrUnknown},
			times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, limits: []time.Duration{100 * ms, 100 * ms, 80 * ms, 0},
		},
		{name: "is refused for nearly so long", store: []any{driver.ErrUnavailable}, limit: 140*ms - 1, goesOn: true, want: []error{driver.ErrUnavailable}, times: []time.Duration{0, 20 * ms, 60 * ms}},
		{name: "is lost, then refused for so long", store: []any{errReset, driver.ErrUnavailable}, limit: 20 * ms, goesOn: true, want: []error{ErrUnknown}, not: []error{driver.ErrUnavailable}, times: []time.Duration{0, 20 * ms}},
		{name: "is lost, which was over", store: []any{errReset}, lost: true, limit: 1, goesOn: true, want: []error{ErrUnknown}, times: []time.Duration{0}},
		{name: "without time", store: []any{driver.ErrUnavailable}, limit: -time.Second, goesOn: true, want: []error{driver.ErrUnavailable}, times: []time.Duration{0}, limits: []time.Duration{0}},
		{name: "keeps the key closed", store: []any{driver.Reply{State: driver.Released}}, min: 15 * time.Second, times: []time.Duration{0}, closed: 14 * time.Second},
		{name: "was held for long enough", store: []any{driver.Reply{State: driver.Released}}, min: 500 * ms, times: []time.Duration{0}},
		{name: "keeps nothing closed that was lost", store: []any{driver.Reply{State: driver.Released}}, min: 15 * time.Second, lost: true, times: []time.Duration{0}},
		{name: "with a request on its way", store: []any{gone}, change: func(h *Hold) { h.unanswered = true }, times: []time.Duration{0}, reject: true, want: []error{ErrLost}},
		{name: "with a downgrade that was not answered", store: []any{gone}, change: func(h *Hold) { h.unsure = true }, times: []time.Duration{0}, reject: true, want: []error{ErrLost}},
		{name: "with a downgrade on its way", store: []any{gone}, change: func(h *Hold) { h.lowering = 1 }, times: []time.Duration{0}, reject: true, want: []error{ErrLost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := answers(c.store...)
			var tired atomic.Bool
			d := &script{release: func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
				if tired.Load() {
					return driver.Reply{State: driver.Released}, nil
				}
				return store(ctx, n, nil)
			}}
			stage(t, d, func(t *testing.T, s *Session) {
				terms := usual()
				terms.NoRenewal, terms.MinHold = true, c.min
				u := &user{terms: terms}
				h := take(t, s, u)
				time.Sleep(time.Second)
				if c.change != nil {
					c.change(h)
				}
				back, ended, lost := h.Leave(true, ErrClosed)
				if !back || !ended || lost != nil {
					t.Errorf("to be given back: %v, ended now: %v, lost: %v", back, ended, lost)
				}
				h.Left(ErrClosed)
				if c.late {
					time.Sleep(time.Until(h.Deadline()))
				}
				if c.limit == 0 {
					c.limit = 6 * time.Second
				}
				begin := time.Since(d.start)
				err := h.Release(t.Context(), c.lost, c.limit)
				tired.Store(true)
				if (err == nil) != (len(c.want) == 0) {
					t.Errorf("error %v", err)
				}
				matches(t, err, c.want, c.not)
				asked := d.of("release")
				var times, limits []time.Duration
				for _, q := range asked {
					times, limits = append(times, (q.at-begin).Round(time.Microsecond)), append(limits, q.limit)
					if q.ref.KeepClosed != c.closed || (q.ref.RejectIDFor == timing.ForbidFor) != c.reject || !c.reject && q.ref.RejectIDFor != 0 || q.ref.ID != "a" {
						t.Errorf("asked by %+v", q.ref)
					}
				}
				if len(times) > len(c.times) && c.name == "hangs" {
					times = times[:len(c.times)]
				}
				if !slices.Equal(times, c.times) || c.limits != nil && !slices.Equal(limits, c.limits) {
					t.Errorf("asked at %v for %v, want %v for %v", times, limits, c.times, c.limits)
				}
				time.Sleep(time.Second)
				if n := len(d.of("release")) - len(asked); (n > 0) != c.goesOn {
					t.Errorf("asked %d times in the background", n)
				}
			})
		})
	}
}

// TestRelease_GoesOnWhileTheStoreMayHaveTheLease, and not after that, nor after a close.
func TestRelease_GoesOnWhileTheStoreMayHaveTheLease(t *testing.T) {
	for _, closed := range []bool{false, true} {
		d := &script{release: answersTo(driver.ErrUnavailable)}
		stage(t, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.NoRenewal = true
			h := take(t, s, &user{terms: terms})
			_, _, _ = h.Leave(true, ErrClosed)
			h.Left(ErrClosed)
			if closed {
				_, _ = s.End()
			}
			if err := h.Release(t.Context(), false, 1); err == nil {
				t.Fatal("it was released")
			}
			synctest.Wait()
			if n := len(d.of("release")); n != 1 {
				t.Fatalf("asked %d times at first", n)
			}
			time.Sleep(time.Hour)
			all := d.times("release")
			if closed {
				if len(all) != 1 {
					t.Errorf("asked at %v after the close", all)
				}
				return
			}
			if first, last := all[1], all[len(all)-1]; first < 450*ms || first > 500*ms || last < 28*time.Second || last > 33*time.Second {
				t.Errorf("asked from %v to %v", first, last)
			}
			all = d.times("release")
			s.Close()
			if len(d.of("release")) != len(all) {
				t.Error("asked at the close")
			}
		})
	}
}

func answersTo(all ...any) func(context.Context, int, *driver.Ref) (driver.Reply, error) {
	store := answers(all...)
	return func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) { return store(ctx, n, nil) }
}

// TestLeave_OneGivesTheLeaseBack: the last who works under it, unless somebody has, and
// everybody is told that the work was unprotected.
func TestLeave_OneGivesTheLeaseBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		over  error // why it has ended before
		given bool
		last  bool
		back  bool
		ended bool // by this
		want  []error
	}{
		{name: "the last", last: true, back: true, ended: true},
		{name: "not the last"},
		{name: "the last of one that was lost", over: ErrExpired, last: true, back: true, want: []error{ErrLost, ErrExpired}},
		{name: "not the last of one that was lost", over: ErrExpired, want: []error{ErrLost}},
		{name: "the last at the maximum", over: ErrMaxHold, given: true, last: true, want: []error{ErrLost, ErrMaxHold}},
		{name: "the last, where it was given back", given: true, last: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, new(script), func(t *testing.T, s *Session) {
				h := take(t, s, &user{terms: usual()})
				if c.over != nil {
					h.over(c.over)
				}
				h.given = c.given
				back, ended, lost := h.Leave(c.last, ErrClosed)
				if back != c.back || ended != c.ended || (lost == nil) != (len(c.want) == 0) {
					t.Errorf("to be given back: %v, ended now: %v, lost: %v", back, ended, lost)
				}
				if errors.Is(c.over, ErrLost) && lost.Error() != c.over.Error() {
					t.Errorf("lost by %q", lost)
				}
				matches(t, lost, c.want, nil)
				why := c.over
				if c.ended {
					why = ErrClosed
				}
				if got := h.Cause(); (got == nil) != (why == nil) || !errors.Is(got, why) {
					t.Errorf("it is over by %v, want %v", got, why)
				}
				if again, _, _ := h.Leave(true, ErrClosed); again == (c.back || c.given) {
					t.Errorf("to be given back again: %v", again)
				}
				h.over(ErrClosed)
			})
		})
	}
}

// TestLeave_NobodyGivesBackWhatEndsByItself: the session has that done.
func TestLeave_NobodyGivesBackWhatEndsByItself(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		h := take(t, s, &user{terms: usual()})
		if !h.quit(ErrMaxHold) || h.quit(ErrClosed) {
			t.Error("it does not end, or twice")
		}
		back, ended, lost := h.Leave(true, ErrClosed)
		if back || ended {
			t.Errorf("to be given back: %v, ended now: %v", back, ended)
		}
		matches(t, lost, []error{ErrLost, ErrMaxHold}, []error{ErrClosed})
	})
}
