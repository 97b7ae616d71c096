package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestDowngrade_IsAsGoodAsItsAnswer: the side that may be counted on is the weaker one
// until it is certain that the store did nothing.
func TestDowngrade_IsAsGoodAsItsAnswer(t *testing.T) {
	granted := driver.Reply{State: driver.Granted, Uncontended: true}
	for _, c := range []struct {
		name     string
		store    []any // of downgrades, one after the other
		slow     time.Duration
		mode     driver.Mode
		lowering bool // some request may still lower it
		want     [][]error
		deadline time.Duration
		lost     error
	}{
		{name: "granted", store: []any{granted}, mode: driver.Shared, want: [][]error{nil}, deadline: 34698 * ms},
		{name: "refused", store: []any{driver.ErrUnavailable}, mode: driver.Exclusive, want: [][]error{{driver.ErrUnavailable}}, deadline: 29698 * ms},
		{name: "lost", store: []any{errReset}, mode: driver.Shared, lowering: true, want: [][]error{{ErrUnknown, errReset}}, deadline: 29698 * ms},
		{name: "lost, then refused", store: []any{errReset, driver.ErrUnavailable}, mode: driver.Shared, lowering: true, want: [][]error{{ErrUnknown}, {ErrUnknown}}, deadline: 29698 * ms},
		{name: "lost, then granted", store: []any{errReset, granted}, mode: driver.Shared, want: [][]error{{ErrUnknown}, nil}, deadline: 34698 * ms},
		{name: "granted, then refused", store: []any{granted, driver.ErrUnavailable}, mode: driver.Shared, want: [][]error{nil, {driver.ErrUnavailable}}, deadline: 34698 * ms},
		{name: "gone", store: []any{driver.Reply{}}, mode: driver.Shared, want: [][]error{{ErrNotHeld, ErrGone}}, deadline: 29698 * ms, lost: ErrGone},
		{name: "broken", store: []any{driver.Reply{Broken: true}}, mode: driver.Shared, want: [][]error{{ErrNotHeld, ErrBroken}}, deadline: 29698 * ms, lost: ErrBroken},
		{name: "granted too late", store: []any{granted}, slow: 24698 * ms, mode: driver.Shared, want: [][]error{{ErrNotHeld, ErrExpired}}, deadline: 29698 * ms, lost: ErrExpired},
		{name: "refused too late", store: []any{driver.ErrUnavailable}, slow: 24698 * ms, mode: driver.Exclusive, want: [][]error{{driver.ErrUnavailable}}, deadline: 29698 * ms, lost: ErrExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := answers(c.store...)
			d := &script{acquire: func(ctx context.Context, n int, req *driver.Request) (driver.Reply, error) {
				if n == 1 {
					return driver.Reply{State: driver.Granted, Token: 7}, nil
				}
				if !req.Downgrade || req.ID != "a" || req.TTL != 30*time.Second || req.Mode != driver.Shared {
					t.Errorf("asked by %+v", req)
				}
				time.Sleep(c.slow)
				return store(ctx, n-1, nil)
			}}
			stage(t, d, func(t *testing.T, s *Session) {
				terms := usual()
				terms.NoRenewal = true
				h := take(t, s, &user{terms: terms})
				time.Sleep(5 * time.Second)
				for _, want := range c.want {
					if err := h.CanLower(); err != nil && !h.reader {
						t.Errorf("it cannot be lowered: %v", err)
					}
					h.Lower()
					if h.Mode() != driver.Shared || h.Lowering() == h.reader {
						t.Errorf("on its way it is %v, and may be lowered: %v", h.Mode(), h.Lowering())
					}
					err := h.Downgrade(t.Context(), driver.Request{Key: "k", Mode: driver.Shared})
					if (err == nil) != (want == nil) {
						t.Errorf("downgraded: %v", err)
					}
					matches(t, err, want, nil)
				}
				if h.Mode() != c.mode || h.Lowering() != c.lowering || h.Deadline().Sub(d.start) != c.deadline || (h.Cause() == nil) != (c.lost == nil) || !errors.Is(h.Cause(), c.lost) {
					t.Errorf("it is %v, may be lowered: %v, lasts until %v, and is over by %v", h.Mode(), h.Lowering(), h.Deadline().Sub(d.start), h.Cause())
				}
				if err := h.CanLower(); (err == nil) != (c.mode == driver.Exclusive && c.lost == nil || c.lowering) {
					t.Errorf("it can be lowered: %v", err)
				}
			})
		})
	}
}

// TestDowngrade_SeveralAtOnceAreReadersUntilAllAreRefused.
func TestDowngrade_SeveralAtOnceAreReadersUntilAllAreRefused(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		h := take(t, s, &user{terms: usual()})
		h.Lower()
		h.Lower()
		for n, mode := range []driver.Mode{driver.Shared, driver.Exclusive} {
			_ = h.downgraded(s.Now(), time.Second, new(driver.Reply), driver.ErrUnavailable)
			if h.Mode() != mode {
				t.Errorf("after %d refusals it is %v", n+1, h.Mode())
			}
		}
	})
	stage(t, new(script), func(t *testing.T, s *Session) {
		h := take(t, s, &user{terms: usual()})
		time.Sleep(time.Second)
		before := h.Deadline()
		h.Lower()
		_ = h.downgraded(s.Now(), time.Second, &driver.Reply{State: driver.Granted}, nil)
		if !h.Deadline().Equal(before) {
			t.Errorf("a downgrade made it %v shorter", before.Sub(h.Deadline()))
		}
	})
}
