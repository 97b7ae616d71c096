package library_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func TestElection_HR_A10_CandidatesOfOneNameLeadOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		named := leasehold.WithName("scheduler")
		a, _ := open(t, store, named)
		b, _ := open(t, store)
		for i, next := range []*leasehold.Election{a.Election("k", ""), b.Election("k", "", named)} {
			noErr(t, a.Election("k", "").Lead(t.Context(), func(context.Context, *leasehold.Lease) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := next.Lead(ctx, func(context.Context, *leasehold.Lease) error {
					t.Errorf("candidate %d leads at the same time", i)
					return nil
				})
				wantErr(t, err, context.DeadlineExceeded)
				return nil
			}))
		}
	})
}

func TestElection_HR_A10_IsNotEnteredUnderItsOwnLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		never := func(context.Context, *leasehold.Lease) error {
			t.Error("there are two leaders")
			return nil
		}
		err := c.Election("k", "").Lead(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			return c.Election("k", "").Lead(ctx, never)
		})
		wantErr(t, err, leasehold.ErrMismatch)
		l := lock(t, c, "k")
		wantErr(t, c.Election("k", "").Lead(l.Context(), never), leasehold.ErrMismatch)
	})
}

// A program may go on after its leader's function has panicked.
func TestElection_HR_A11_LeaderThatPanicsOrExitsLeadsNoMore(t *testing.T) {
	for name, end := range map[string]func(){
		"panics": func() { panic("in the middle") },
		"exits":  runtime.Goexit,
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, _ := open(t, store)
			var lease *leasehold.Lease
			for _, call := range []func(ctx context.Context) error{
				func(ctx context.Context) error {
					return c.Election("k", "").Lead(ctx, func(_ context.Context, l *leasehold.Lease) error {
						lease = l
						end()
						return nil
					})
				},
				func(ctx context.Context) error {
					return leasehold.Do(ctx, c.Mutex("k"), func(ctx context.Context) error {
						lease, _ = leasehold.FromContext(ctx)
						end()
						return nil
					})
				},
			} {
				go func() {
					defer func() { _ = recover() }()
					_ = call(t.Context())
				}()
				synctest.Wait()
				wantFree(t, store, "k")
				if lease.State() != leasehold.Released {
					t.Errorf("%v", lease.State())
				}
			}
		})
	}
}

// TestElection_ErrorOfTheFunctionIsNeverDropped: Lead returns an error of the function, also if
// the term ended before it. The end of the function's context does not count as an error.
func TestElection_ErrorOfTheFunctionIsNeverDropped(t *testing.T) {
	disk := errors.New("disk full")
	for name, row := range map[string]struct {
		result func(context.Context) error
		want   []error // of Lead; nil if it campaigns again
	}{
		"its own":                {func(context.Context) error { return disk }, []error{disk, leasehold.ErrLost}},
		"beside the context's":   {func(ctx context.Context) error { return errors.Join(ctx.Err(), disk) }, []error{disk, leasehold.ErrLost}},
		"a time-out of its own":  {func(context.Context) error { return context.DeadlineExceeded }, []error{context.DeadlineExceeded, leasehold.ErrLost}},
		"none":                   {func(context.Context) error { return nil }, nil},
		"the context's":          {func(ctx context.Context) error { return ctx.Err() }, nil},
		"the context's, wrapped": {func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, nil},
		"the cause":              {context.Cause, nil},
		"both":                   {func(ctx context.Context) error { return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx)) }, nil},
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, _ := open(t, store, leasehold.WithTTL(ttl))
			terms := 0
			err := c.Election("k", "").Lead(t.Context(), func(ctx context.Context, l *leasehold.Lease) error {
				if terms++; terms > 1 {
					return nil
				}
				breakIt(t, store, l)
				<-ctx.Done()
				return row.result(ctx)
			})
			if wantErr(t, err, row.want...); row.want == nil && (err != nil || terms != 2) || row.want != nil && terms != 1 {
				t.Errorf("%v after %d terms", err, terms)
			}
		})
	}
}

// glanced is a store that fails if its waiters are asked for, too.
type glanced struct{ *memdriver.Driver }

func (glanced) Inspect(context.Context, string) (driver.Snapshot, error) {
	return driver.Snapshot{}, errors.New("all who wait were looked at")
}

func TestElection_HR_D7_LeaderIsToldWithoutThoseWhoWait(t *testing.T) {
	client := newClient(t, glanced{memdriver.New()})
	lease := must(t)(client.Mutex("e", leasehold.WithName("first")).Lock(t.Context()))
	if leader, err := client.Election("e", "value").Leader(t.Context()); err != nil || leader.Owner != "first" {
		t.Errorf("%+v, %v", leader, err)
	}
	giveBack(t, lease)
	_, err := client.Election("e", "value").Leader(t.Context())
	if !errors.Is(err, leasehold.ErrNotHeld) {
		t.Errorf("%v, want ErrNotHeld", err)
	}
}
