package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestConfirm_AsksUntilTheStoreHasAnswered, as often and as long as it says, and takes an
// outcome for unknown only if a question may have had an effect.
func TestConfirm_AsksUntilTheStoreHasAnswered(t *testing.T) {
	granted, gone := driver.Reply{State: driver.Granted, Token: 7}, driver.Reply{State: driver.Gone}
	for _, c := range []struct {
		name   string
		store  []any
		slow   time.Duration // the first answer
		maxTry time.Duration
		times  []time.Duration
		limits []time.Duration
		want   []error
		not    []error
	}{
		{name: "grants", store: []any{granted}, times: []time.Duration{0}, limits: []time.Duration{5 * time.Second}},
		{name: "grants too late, then in time", store: []any{granted}, slow: 3 * time.Second, times: []time.Duration{0, 3020 * ms}},
		{name: "has it no more", store: []any{gone}, times: []time.Duration{0}, want: []error{ErrNotHeld}, not: []error{ErrUnknown, ErrBroken}},
		{name: "says late that it has it no more", store: []any{gone}, slow: 3 * time.Second, times: []time.Duration{0}, want: []error{ErrNotHeld}, not: []error{ErrUnknown, ErrBroken}},
		{name: "tells of a break", store: []any{driver.Reply{Broken: true}}, times: []time.Duration{0}, want: []error{ErrNotHeld, ErrBroken}},
		{name: "loses, then grants", store: []any{errReset, granted}, times: []time.Duration{0, 20 * ms}},
		{name: "loses, then has it no more", store: []any{errReset, gone}, times: []time.Duration{0, 20 * ms}, want: []error{ErrNotHeld}, not: []error{ErrUnknown}},
		{name: "refuses for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, want: []error{driver.ErrInvalid}, not: []error{ErrUnknown}},
		{name: "loses, then refuses for good", store: []any{errReset, driver.ErrInvalid}, times: []time.Duration{0, 20 * ms}, want: []error{driver.ErrInvalid, ErrUnknown}},
		{
			name: "hangs", store: []any{nil}, maxTry: time.Minute, want: []error{context.DeadlineExceeded, ErrUnknown},
			times:  []time.Duration{0, 5020 * ms, 10060 * ms, 15140 * ms, 20300 * ms, 25470 * ms, 28235 * ms, 29735 * ms},
			limits: []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second, 4850 * ms},
		},
		{
			name: "refuses", store: []any{driver.ErrUnavailable}, maxTry: 100 * ms, want: []error{driver.ErrUnavailable}, not: []error{ErrUnknown},
			times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, limits: []time.Duration{100 * ms, 80 * ms, 40 * ms, ms},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := new(script)
			store := answers(c.store...)
			d.renew = func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
				if n == 1 {
					time.Sleep(c.slow)
				}
				return store(ctx, n, nil)
			}
			stage(t, d, func(t *testing.T, s *Session) {
				terms := usual()
				terms.TTL, terms.MaxTry = 2*time.Second, c.maxTry
				g, err := s.Confirm(t.Context(), terms, driver.Ref{Key: "k", ID: "a", TTL: terms.TTL}, s.Now())
				if (err == nil) != (len(c.want) == 0) {
					t.Errorf("error %v", err)
				}
				last := c.times[len(c.times)-1]
				if err == nil && (g.Token != 7 || g.Origin.Sub(d.start) != last) {
					t.Errorf("granted %+v, %v after the beginning", g, g.Origin.Sub(d.start))
				}
				matches(t, err, c.want, c.not)
				if got := d.times("renew"); !slices.Equal(got, c.times) {
					t.Errorf("asked at %v, want %v", got, c.times)
				}
				if got := d.limits("renew"); c.limits != nil && !slices.Equal(got[:len(c.limits)], c.limits) {
					t.Errorf("for at most %v, want %v", got, c.limits)
				}
			})
		})
	}
}

// matches holds an error to what it matches, and what it does not.
func matches(t *testing.T, err error, want, not []error) {
	t.Helper()
	for _, want := range want {
		if !errors.Is(err, want) {
			t.Errorf("%v does not match %v", err, want)
		}
	}
	for _, not := range not {
		if errors.Is(err, not) {
			t.Errorf("%v matches %v", err, not)
		}
	}
}

// looking is an inspector that answers like store, and notes when it is asked.
type looking struct {
	driver.Inspector
	d     *script
	store func(context.Context, int, *driver.Request) (driver.Reply, error)
}

func (l *looking) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	n := l.d.note(ctx, question{verb: "inspect"})
	_, err := l.store(ctx, n, nil)
	return driver.Snapshot{}, err
}

// TestInspect_LooksUntilTheStoreHasAnswered, and never takes a look for something that may
// have had an effect.
func TestInspect_LooksUntilTheStoreHasAnswered(t *testing.T) {
	for _, c := range []struct {
		name      string
		store     []any
		maxTry    time.Duration
		maxOutage time.Duration
		times     []time.Duration
		limits    []time.Duration
		want      error
	}{
		{name: "answers", store: []any{driver.Reply{}}, times: []time.Duration{0}, limits: []time.Duration{5 * time.Second}},
		{name: "answers in the end", store: []any{errReset, errReset, driver.Reply{}}, times: []time.Duration{0, 20 * ms, 60 * ms}},
		{name: "refuses for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, want: driver.ErrInvalid},
		{name: "is asked once", store: []any{errReset}, maxOutage: -30 * time.Second, times: []time.Duration{0}, want: errReset},
		{name: "fails", store: []any{errReset}, maxTry: 100 * ms, times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, want: errReset},
		{name: "hangs", store: []any{nil}, maxTry: 12 * time.Second, times: []time.Duration{0, 5020 * ms, 8550 * ms, 10355 * ms, 11515 * ms}, limits: []time.Duration{5 * time.Second, 3490 * ms, 1725 * ms, time.Second, 485 * ms}, want: context.DeadlineExceeded},
		{name: "hangs for longer", store: []any{nil}, maxTry: time.Minute, limits: []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}, want: context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := new(script)
			stage(t, d, func(t *testing.T, s *Session) {
				terms := usual()
				terms.MaxTry = c.maxTry
				terms.MaxOutage += c.maxOutage
				_, err := s.Inspect(t.Context(), terms, &looking{d: d, store: answers(c.store...)}, "k", s.Now())
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if got := d.times("inspect"); c.times != nil && !slices.Equal(got, c.times) {
					t.Errorf("asked at %v, want %v", got, c.times)
				}
				if got := d.limits("inspect"); c.limits != nil && !slices.Equal(got[:len(c.limits)], c.limits) {
					t.Errorf("for at most %v, want %v", got, c.limits)
				}
			})
		})
	}
}
