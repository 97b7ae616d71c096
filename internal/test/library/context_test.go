package library_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// TestLease_ContextThatIsAskedForLateTellsTheSame compares the end of contexts with the state and
// the cause of their lease, also of a lease that re-entered, at each time at which the context
// can be made.
func TestLease_ContextThatIsAskedForLateTellsTheSame(t *testing.T) {
	type scene struct {
		store        *memdriver.Driver
		client       *leasehold.Client
		cancel       func()
		outer, inner *leasehold.Lease
	}
	breaks := func(t *testing.T, s *scene) {
		_, err := s.store.Break(t.Context(), "k", s.outer.ID(), "stuck")
		noErr(t, err)
		time.Sleep(ttl / 2)
	}
	const (
		released = "released, by lease released"
		ended    = "context, by no more"
		broken   = "lost, by lease lost: lease broken by force: stuck"
		expired  = "lost, by lease lost: not renewed before its deadline"
	)
	for _, row := range []struct {
		name        string
		end         func(t *testing.T, s *scene)
		want, inner string // inner is as want if empty
	}{
		{"nothing", func(*testing.T, *scene) {}, "held, by <nil>", ""},
		{"released", func(_ *testing.T, s *scene) { _ = s.outer.Release(); _ = s.inner.Release() }, released, ""},
		{"released inside", func(_ *testing.T, s *scene) { _ = s.inner.Release() }, "held, by <nil>", released},
		{"released outside", func(_ *testing.T, s *scene) { _ = s.outer.Release() }, released, "context, by lease released"},
		{"released, parent ended", func(_ *testing.T, s *scene) { _ = s.inner.Release(); _ = s.outer.Release(); s.cancel() }, released, ""},
		{"parent ended", func(_ *testing.T, s *scene) { s.cancel() }, ended, ""},
		{"parent ended, released", func(_ *testing.T, s *scene) { s.cancel(); _ = s.inner.Release(); _ = s.outer.Release() }, ended, ""},
		{"parent's deadline", func(*testing.T, *scene) { time.Sleep(4 * ttl) }, "context, by context deadline exceeded", ""},
		{"broken", breaks, broken, ""},
		{"broken, parent ended", func(t *testing.T, s *scene) { breaks(t, s); s.cancel() }, broken, ""},
		{"gone", func(t *testing.T, s *scene) {
			_, err := s.store.Release(t.Context(), driver.Ref{Key: "k", ID: s.outer.ID()})
			noErr(t, err)
			time.Sleep(ttl / 2)
		}, "lost, by lease lost: the store no longer has it", ""},
		{"deadline passed", func(*testing.T, *scene) { clock.Advance(ttl) }, expired, ""},
		{"deadline passed, parent ended", func(_ *testing.T, s *scene) { clock.Advance(ttl); s.cancel() }, "lost, by no more", ""},
		{"client closed", func(_ *testing.T, s *scene) { _ = s.client.Close() }, "closed, by client closed", ""},
		{"maximum", func(*testing.T, *scene) { time.Sleep(2*ttl + ttl/2) }, "max_hold, by maximum hold time reached", ""},
		{"detached", func(t *testing.T, s *scene) {
			_ = s.inner.Release()
			noErr(t, s.outer.Detach(t.Context()))
		}, "released, by left in the store: lease released", released},
	} {
		for _, early := range []bool{true, false} {
			runBubble(t, fmt.Sprint(row.name, early), func(t *testing.T, store *memdriver.Driver) {
				opts := []leasehold.Option{leasehold.WithTTL(ttl)}
				if row.name != "parent's deadline" {
					opts = append(opts, leasehold.WithMaxHold(2*ttl))
				}
				c, _ := open(t, store, opts...)
				deadline, stop := context.WithTimeout(t.Context(), 7*ttl/2)
				defer stop()
				parent, cancel := context.WithCancelCause(deadline)
				defer cancel(nil)
				outer := must(t)(c.Mutex("k").Lock(parent))
				inner := must(t)(c.Mutex("k").Lock(outer.Context()))
				if early {
					outer.Context().Done()
					inner.Context().Done()
				}
				row.end(t, &scene{store, c, func() { cancel(errors.New("no more")) }, outer, inner})
				for range 2 { // at once, and when everything has been reported
					for i, l := range []*leasehold.Lease{outer, inner} {
						want, ctx := row.want, l.Context()
						if i == 1 && row.inner != "" {
							want = row.inner
						}
						if got := fmt.Sprintf("%v, by %v", l.State(), context.Cause(ctx)); got != want || (ctx.Err() != nil) != (context.Cause(ctx) != nil) || l.State().Live() != (ctx.Err() == nil) {
							t.Errorf("%d: %q and %v, want %q", i, got, ctx.Err(), want)
						}
						if ctx.Err() != nil && !closed(ctx.Done()) {
							t.Errorf("%d: it has ended by %v, and is not done", i, ctx.Err())
						}
					}
					synctest.Wait()
				}
				_ = inner.Release()
				_ = outer.Release()
			})
		}
	}
}

// nosy is a context that calls look in its method Done.
type nosy struct {
	context.Context
	look func()
}

func (n *nosy) Done() <-chan struct{} {
	if look := n.look; look != nil {
		n.look = nil
		look()
	}
	return n.Context.Done()
}

// TestLease_ContextIsOneIfItIsAskedForWhileItIsMade is the same in steps: a second call asks for
// the context, or the lease ends, while the first call is in the parent's Done.
func TestLease_ContextIsOneIfItIsAskedForWhileItIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		parent := &nosy{Context: t.Context()}
		l := must(t)(c.Mutex("k").Lock(parent))
		var second <-chan struct{}
		parent.look = func() { second = l.Context().Done() }
		if first := l.Context().Done(); second == nil || first != second {
			t.Errorf("two contexts: %v, %v", first, second)
		}
		giveBack(t, l)
		<-second
		l = must(t)(c.Mutex("k").Lock(parent))
		parent.look = func() { giveBack(t, l) }
		if !closed(l.Context().Done()) {
			t.Error("it is live")
		}
		wantErr(t, context.Cause(l.Context()), leasehold.ErrReleased)
	})
}
