package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

func TestClose_L16_ReleasesHoldsAndAnswersWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		other, _ := open(t, store)
		var held []*leasehold.Lease
		for i := range 100 {
			held = append(held, lock(t, c, fmt.Sprint(i)))
		}
		lock(t, other, "busy")
		errs := make(chan error)
		for range 10 {
			go func() {
				_, err := c.Mutex("busy").Lock(context.Background())
				errs <- err
			}()
			go func() {
				_, err := c.Mutex("busy", leasehold.WithRetry(leasehold.Constant(time.Minute))).Lock(context.Background())
				errs <- err
			}()
		}
		synctest.Wait()
		start := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		for range 20 {
			wantErr(t, <-errs, leasehold.ErrClosed)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("took %v with a store that answers at once", got)
		}
		for _, l := range held {
			wantErr(t, context.Cause(l.Context()), leasehold.ErrClosed)
			wantErr(t, l.Release(), leasehold.ErrClosed)
			wantFree(t, store, l.Key())
		}
		if n := d.count(release); n != 100+10 {
			t.Errorf("%d releases, want one for each lease and each ticket", n)
		}
		if snap, _ := store.Inspect(t.Context(), "busy"); len(snap.Waiters) > 0 || len(snap.Holders) != 1 {
			t.Errorf("left behind: %+v", snap)
		}
		_, err := c.Mutex("k").Lock(t.Context())
		wantErr(t, err, leasehold.ErrClosed)
		_, err = c.Mutex("k").TryLock(t.Context())
		wantErr(t, err, leasehold.ErrClosed)
		if err := c.Close(); err != nil {
			t.Errorf("the second close: %v", err)
		}
	})
}

func TestClose_L16_IsBoundedWhateverHangs(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithReleaseTimeout(3*time.Second))
		for i := range 1000 {
			lock(t, c, fmt.Sprint(i))
		}
		other, _ := open(t, store)
		lock(t, other, "busy")
		errs := make(chan error, 3)
		go func() { _, err := c.Mutex("busy").Lock(context.Background()); errs <- err }()
		synctest.Wait()
		d.on(acquire, 0, hangs)
		d.on(renew, 0, hangs)
		d.on(release, 0, hangs)
		go func() { _, err := c.Mutex("x").Lock(context.Background()); errs <- err }()
		go func() { _, err := c.Mutex("y").TryLock(context.Background()); errs <- err }()
		time.Sleep(11 * time.Second) // with renewals in flight
		start := time.Now()
		err := c.Close()
		wantErr(t, err, leasehold.ErrUnknown)
		if !strings.Contains(err.Error(), "1000 not given back, among them the lease of \"") {
			t.Errorf("told: %v", err)
		}
		if got := time.Since(start); got > 12*time.Second {
			t.Errorf("took %v", got)
		}
		for range 3 {
			err := <-errs
			if !errors.Is(err, leasehold.ErrClosed) && !errors.Is(err, leasehold.ErrUnknown) {
				t.Error(err)
			}
		}
	})
}

func TestClose_L16_LeavesNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store := memdriver.New()
	for range 20 {
		a, err := leasehold.New(newFault(store))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := leasehold.New(newFault(store))
		ctx, cancel := context.WithCancel(t.Context())
		l, err := a.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { _, err := b.Mutex("k").Lock(context.Background()); got <- err }()
		for b.Stats().Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-got, leasehold.ErrClosed)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		<-l.Context().Done()
	}
}

// Nothing is left behind of a lease that the store has not any more.
func TestClose_OfALostLeaseIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		l := lock(t, c, "k")
		if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestClose_WhileAGrantIsOnItsWayGivesItBack(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		gate := make(chan struct{})
		d.on(acquire, 1, fault{gate: gate})
		got := make(chan error, 1)
		go func() { _, err := c.Mutex("k").Lock(context.Background()); got <- err }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		close(gate)
		wantErr(t, <-got, leasehold.ErrClosed)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		wantFree(t, store, "k")
	})
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
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				holder, _ := open(t, store)
				lock(t, holder, "held")
				d := newFault(store)
				c, err := leasehold.New(d, row.opts...)
				if err != nil {
					t.Fatal(err)
				}
				if row.hang {
					away(d, hangs)
				}
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
		})
	}
}

func TestNew_RefusesNoDriver(t *testing.T) {
	var typed *memdriver.Driver
	for _, d := range []driver.Driver{nil, typed} {
		_, err := leasehold.New(d)
		wantErr(t, err, leasehold.ErrInvalid)
	}
}

func TestMinHold_KeepsTheLockClosedAfterACleanRelease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		l := lock(t, c, "k", leasehold.WithMinHold(time.Minute))
		time.Sleep(20 * time.Second)
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		_, err := c.Mutex("k").TryLock(t.Context())
		wantErr(t, err, leasehold.ErrHeld)
		start := time.Now()
		l, err = c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got < 40*time.Second || got > 40*time.Second+10*time.Millisecond {
			t.Errorf("closed for %v more, want 40s", got)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		lock(t, c, "k")
	})
}

func TestLockDelay_FollowsALossAndNotARelease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithLockDelay(time.Minute))
		b, _ := open(t, store)
		if err := lock(t, a, "k").Release(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		lock(t, a, "k")
		d.on(renew, 0, fails)
		if _, err := b.Mutex("k").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got < ttl+time.Minute || got > ttl+time.Minute+10*time.Millisecond {
			t.Errorf("free after %v, want %v", got, ttl+time.Minute)
		}
	})
}

func TestMinToken_RaisesTheTokenAndThoseAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		first := lock(t, c, "k")
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		least := first.Token() + 1_000_000
		second := lock(t, c, "k", leasehold.WithMinToken(least))
		if err := second.Release(); err != nil {
			t.Fatal(err)
		}
		third := lock(t, c, "k")
		if second.Token() <= least || third.Token() <= second.Token() {
			t.Errorf("tokens %d, %d, %d with a minimum of %d", first.Token(), second.Token(), third.Token(), least)
		}
		_, err := c.Mutex("far", leasehold.WithMinToken(1<<53-1)).TryLock(t.Context())
		wantErr(t, err, leasehold.ErrInvalid)
	})
}
