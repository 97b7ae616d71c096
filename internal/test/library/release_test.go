package library_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func TestRelease_IsIdempotentAndConcurrent(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.on(release, 0, fault{late: 20 * time.Millisecond})
		l := lock(t, c, "k")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				giveBack(t, l)
				wantFree(t, store, "k") // whichever call returned first
			})
		}
		wg.Wait()
		if n := d.count(release); n != 1 {
			t.Errorf("%d releases", n)
		}
		if l.State() != leasehold.Released {
			t.Error(l.State())
		}
		wantErr(t, context.Cause(l.Context()), leasehold.ErrReleased)
		wantErr(t, l.Extend(t.Context(), ttl), leasehold.ErrNotHeld, leasehold.ErrReleased)
	})
}

// lastFirst is a context that ends its followers in the opposite order: the first follower ends
// last. The contexts of the standard library have no defined order.
type lastFirst struct {
	context.Context
	mu      sync.Mutex
	follows []func()
	done    chan struct{}
	err     error
}

func (c *lastFirst) Done() <-chan struct{} { return c.done }

func (c *lastFirst) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc implements the optional interface that the context package looks for.
func (c *lastFirst) AfterFunc(f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follows = append(c.follows, f)
	return func() bool { return false }
}

func (c *lastFirst) end() {
	c.mu.Lock()
	c.err = context.Canceled
	close(c.done)
	c.mu.Unlock()
	for _, f := range slices.Backward(c.follows) {
		go f()
		synctest.Wait()
	}
}

func TestLease_L13_ParentsEndIsNoticedInWhateverOrderItIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		parent := &lastFirst{Context: t.Context(), done: make(chan struct{})}
		l := must(t)(c.Mutex("k").Lock(parent))
		parent.end()
		wantErr(t, context.Cause(l.Context()), context.Canceled)
		if l.State() != leasehold.ContextEnded {
			t.Errorf("state %v", l.State())
		}
		giveBack(t, l)
		wantFree(t, store, "k")
	})
}

type valueKey struct{}

func TestLease_L14_ParentsValuesAndDeadlineAreVisible(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, 42), time.Minute)
		defer cancel()
		l := must(t)(c.Mutex("k").Lock(ctx))
		want, _ := ctx.Deadline()
		if got, ok := l.Context().Deadline(); !ok || !got.Equal(want) || l.Context().Value(valueKey{}) != 42 {
			t.Errorf("deadline %v, value %v", got, l.Context().Value(valueKey{}))
		}
		child, done := context.WithCancel(l.Context())
		defer done()
		giveBack(t, l)
		<-child.Done()
		wantErr(t, context.Cause(child), leasehold.ErrReleased)
	})
}

func TestLease_L15_WallClockStepsChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		// The only wall clock time that is sent is for display.
		c, d := open(t, store)
		l := lock(t, c, "k")
		req := d.seen(acquire)[0].req
		req.ID, req.Since = "other", req.Since.Add(10*time.Minute)
		reply, err := store.Acquire(t.Context(), req)
		if err != nil || reply.State != driver.Busy || reply.RetryAfter > 30*time.Second {
			t.Errorf("%+v, %v", reply, err)
		}
		if l.Remaining() > 30*time.Second {
			t.Errorf("remaining %v", l.Remaining())
		}
	})
}

// TestLease_LostAndNeverReleasedIsNotRememberedByItsParent also has the parent
// end while the lease is being made.
func TestLease_LostAndNeverReleasedIsNotRememberedByItsParent(t *testing.T) {
	store := &nowhere{}
	c := newClient(t, store, leasehold.WithTTL(10*time.Millisecond), leasehold.WithoutRenewal())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	collected := make(chan struct{})
	func() {
		l := must(t)(c.Mutex("k").Lock(ctx))
		runtime.AddCleanup(l, func(struct{}) { close(collected) }, struct{}{})
		<-l.Context().Done()
	}()
	collect(t, func() bool {
		select {
		case <-collected:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
}

func TestClose_L16_LeavesNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store := memdriver.New()
	for range 20 {
		a, b := newClient(t, newFault(store)), newClient(t, newFault(store))
		ctx, cancel := context.WithCancel(t.Context())
		l := must(t)(a.Mutex("k").Lock(ctx))
		got := make(chan error, 1)
		go func() { _, err := b.Mutex("k").Lock(context.Background()); got <- err }()
		for b.Stats().Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		noErr(t, b.Close())
		wantErr(t, <-got, leasehold.ErrClosed)
		noErr(t, a.Close())
		cancel()
		<-l.Context().Done()
	}
}

func TestNew_RefusesNoDriverAndNoClass(t *testing.T) {
	var typed *memdriver.Driver
	for _, d := range []driver.Driver{nil, typed} {
		_, err := leasehold.New(d)
		wantErr(t, err, leasehold.ErrInvalid)
	}
	_, err := leasehold.New(memdriver.New(), leasehold.WithClass(nil))
	wantErr(t, err, leasehold.ErrInvalid)
}

// TestRelease_HR_H1_LossIsJudgedAtTheMomentOfTheCall: a lease is not lost if it ran out while the
// store refused or failed to release it.
func TestRelease_HR_H1_LossIsJudgedAtTheMomentOfTheCall(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuses, "failed": fails, "hung": hangs} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithTTL(3*time.Second))
			l := lock(t, c, "k")
			time.Sleep(900 * time.Millisecond)
			s := d.on(release, 0, f)
			time.AfterFunc(4*time.Second, func() { d.mu.Lock(); s.left = 0; d.mu.Unlock() })
			giveBack(t, l)
			if s := c.Stats(); s.Lost != 0 || s.Released != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestClose_IsBounded: Close cancels calls under way, and waits for ten seconds at most for
// a logger or an observer that does not return, even if that calls Close.
func TestClose_IsBounded(t *testing.T) {
	blocks := func(ctx context.Context, c *leasehold.Client, _ func()) {
		ctx = leasehold.ObserveWait(ctx, func(leasehold.WaitEvent) { time.Sleep(time.Hour) })
		_, _ = c.Mutex("held").Lock(ctx)
	}
	for _, row := range []struct {
		name string
		opts []leasehold.Option
		hang bool
		wait func(ctx context.Context, c *leasehold.Client, closeIt func())
		late bool
	}{
		{"a store that hangs", nil, true, nil, false},
		{"a store that hangs, for ever", []leasehold.Option{leasehold.WithMaxOutage(-1)}, true, nil, false},
		{"a store that hangs, in turns", []leasehold.Option{leasehold.WithLocalHandover(10)}, true, nil, false},
		{"an observer that blocks", nil, false, blocks, true},
		{"an observer that closes", nil, false, func(ctx context.Context, c *leasehold.Client, closeIt func()) {
			_, _ = c.Mutex("held").Lock(leasehold.ObserveWait(ctx, func(leasehold.WaitEvent) { closeIt() }))
		}, true},
		{"a logger that blocks", []leasehold.Option{leasehold.WithLogger(slog.New(slowLog{}))}, true, nil, true},
	} {
		runBubble(t, row.name, func(t *testing.T, store *memdriver.Driver) {
			holder, _ := open(t, store)
			lock(t, holder, "held")
			d := newFault(store)
			c := newClient(t, d, row.opts...)
			if row.hang {
				away(d, hangs)
			}
			var err error
			var took time.Duration
			closeIt := sync.OnceFunc(func() {
				start := time.Now()
				err = c.Close()
				took = time.Since(start)
			})
			if row.wait == nil {
				row.wait = func(ctx context.Context, c *leasehold.Client, _ func()) { _, _ = c.Mutex("k").Lock(ctx) }
			}
			var calls sync.WaitGroup
			calls.Go(func() { row.wait(context.Background(), c, closeIt) })
			time.Sleep(20 * time.Second)
			closeIt()
			if (err != nil) != row.late || took > 10*time.Second {
				t.Errorf("Close took %v: %v", took, err)
			}
			calls.Wait()
			time.Sleep(time.Hour)
		})
	}
}
