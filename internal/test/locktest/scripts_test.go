package locktest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// TestScripts plays on the Redis scripts in the interpreter, with cases that only Redis
// has.
func TestScripts(t *testing.T) {
	skip.Racing(t, "one goroutine runs the interpreter, and TestMemory has the same cases")
	run(t, func(testing.TB) Store { return scripts(teststore.NewRedis(time.Now)) }, all)
}

func scripts(store *teststore.Redis) Store {
	return Store{
		Open:  func(testing.TB) driver.Driver { return store.Join() },
		Flush: store.Flush,
		// The fencing counters and records expire an hour after the last time that they store.
		Ends: func(tb testing.TB) {
			time.Sleep(time.Hour + 2*time.Minute)
			for key := range store.Keys() {
				tb.Errorf("the key %q is left", key)
			}
		},
	}
}

// onScripts plays one case on the scripts.
func onScripts(t *testing.T, run func(l *lab, server *teststore.Redis)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := teststore.NewRedis(time.Now)
		playCase(t, scripts(server), row{"k", func(l *lab) { run(l, server) }})
	})
}

func TestScripts_W4_CommandsOfWaitersAreFew(t *testing.T) {
	onScripts(t, func(l *lab, server *teststore.Redis) {
		const waiters = 50
		a, _ := l.client()
		b, _ := l.client()
		first := l.lock(a)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if lease, err := b.Mutex(l.key).Lock(ctx); err == nil {
					_ = lease.Release() // ctx has ended it
				}
			})
		}
		l.listening(a, waiters)
		before := server.Runs()
		time.Sleep(heartbeat)
		if n := server.Runs() - before; n > 30 {
			l.Errorf("%d waiters cost %d scripts in a heartbeat", waiters, n)
		}
		cancel()
		wg.Wait()
		l.release(first)
	})
}

// TestScripts_LocalHandoverStaysWhileNobodyElseWaits: while the store reports no waiters of other
// processes, the lease stays for as long as callers of the process wait, and not only for n
// hand-overs.
func TestScripts_LocalHandoverStaysWhileNobodyElseWaits(t *testing.T) {
	onScripts(t, func(l *lab, _ *teststore.Redis) {
		const n, callers = 3, 20
		c, _ := l.client(leasehold.WithLocalHandover(n))
		other, _ := l.client()
		held := l.lock(c)
		got := make(chan outcome, callers)
		for range callers {
			go func() {
				lease, err := c.Mutex(l.key).Lock(context.Background())
				got <- outcome{lease: lease, err: err}
			}()
		}
		eventually(l.TB, patience, func() bool { return c.Stats().Waiting == callers },
			func() string { return "not all callers wait" })
		id, token := held.ID(), held.Token()
		l.release(held)
		for range callers {
			next := l.entered(got, slack)
			if next.ID() != id || next.Token() <= token {
				l.Errorf("the lease %s with token %d became %s with token %d", id, token, next.ID(), next.Token())
			}
			token = next.Token()
			l.release(next)
		}
		l.wantFree(5 * time.Second)
		last := l.lock(other)
		if last.Token() <= token {
			l.Errorf("token %d after %d", last.Token(), token)
		}
		l.release(last)
	})
}
