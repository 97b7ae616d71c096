package locktest_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// inner is a test. Its failure does not fail the test around it.
type inner struct {
	testing.T
	cleanups []func()
}

func (i *inner) Cleanup(f func()) { i.cleanups = append(i.cleanups, f) }

// passes plays the first case of a name in a bubble.
func passes(t *testing.T, s func(testing.TB) Store, name string) bool {
	t.Helper()
	all := rows()
	i := slices.IndexFunc(all, func(r row) bool { return strings.HasPrefix(r.name, name) })
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	in := new(inner)
	synctest.Test(t, func(t *testing.T) {
		toItsEnd(func() { playCase(in, s(t), all[i]) })
		for _, f := range slices.Backward(in.cleanups) {
			toItsEnd(f)
		}
	})
	return !in.Failed()
}

// toItsEnd calls f, which may end its goroutine.
func toItsEnd(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// inMemory returns a store in memory with wrapped drivers.
func inMemory(wrap func(*memdriver.Driver) driver.Driver) func(testing.TB) Store {
	return func(testing.TB) Store {
		store := memdriver.New()
		return Store{Open: func(testing.TB) driver.Driver { return wrap(store.Join()) }}
	}
}

// liar grants every request, after a while, and confirms every renewal.
type liar struct {
	*memdriver.Driver
	token *atomic.Int64
	takes time.Duration
}

func liars(takes time.Duration) func(testing.TB) Store {
	token := new(atomic.Int64)
	return inMemory(func(d *memdriver.Driver) driver.Driver { return liar{d, token, takes} })
}

func (l liar) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	time.Sleep(l.takes)
	return driver.Reply{State: driver.Granted, Token: l.token.Add(1), Holds: 1}, nil
}

func (l liar) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

func (l liar) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

// losing loses the first waiter at every release by a holder.
type losing struct{ *memdriver.Driver }

func (l losing) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	snap, err := l.Inspect(ctx, ref.Key)
	if err == nil && len(snap.Waiters) > 0 && len(snap.Holders) > 0 && snap.Holders[0].ID == ref.ID {
		_, _ = l.Driver.Release(ctx, driver.Ref{Key: ref.Key, ID: snap.Waiters[0].ID})
	}
	return l.Driver.Release(ctx, ref)
}

// keeping confirms releases without doing them.
type keeping struct{ *memdriver.Driver }

func (k keeping) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

// barging lets some requests enter before the waiters.
type barging struct{ *memdriver.Driver }

func (b barging) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if rand.IntN(5) == 0 {
		req.Policy = driver.Barging
	}
	return b.Driver.Acquire(ctx, req)
}

// TestRun_FailsOnSeededFaults keeps the cases honest: each fault of a store is an error of
// the cases that look for it.
func TestRun_FailsOnSeededFaults(t *testing.T) {
	const exclusion, order, wait = "W1_NeverTwoHoldersAndTokensRise", "P6_HundredWaitersAreServedEvenlyAndInOrder", "W3_WaitsEndWithoutAnyHint"
	for _, fault := range []struct {
		name  string
		store func(testing.TB) Store
		cases []string
	}{
		{"grants to every caller after 150 ms", liars(150 * time.Millisecond), []string{exclusion, "K13_KindsExcludeEachOther/"}},
		{"a waiter is lost", inMemory(func(d *memdriver.Driver) driver.Driver { return losing{d} }), []string{order, "W2_CancelledHeadDisturbsNobody", "W11_ArrivalsOfOneMomentAreServedInTheStoresOrder"}},
		{"a waiter is overtaken", inMemory(func(d *memdriver.Driver) driver.Driver { return barging{d} }), []string{exclusion, order}},
		{"a release does nothing", inMemory(func(d *memdriver.Driver) driver.Driver { return keeping{d} }), []string{wait, "L13_ParentsEndKeepsTheLock"}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			for _, name := range fault.cases {
				if passes(t, fault.store, name) {
					t.Errorf("%s passes", name)
				}
			}
		})
	}
	for _, name := range []string{exclusion, order, wait} {
		if !passes(t, memory, name) {
			t.Errorf("%s fails on a store without a fault", name)
		}
	}
}
