package locktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// foreign is a program that locks by SET NX of the same key.
type foreign struct {
	*lab
	server *teststore.Redis
}

func (f foreign) taken(key string) bool { return f.server.SetNX("p:"+key, "theirs", time.Minute) }

func (f foreign) leaves(key string) {
	f.Helper()
	if !f.server.Delete("p:" + key) {
		f.Errorf("%q is not there", key)
	}
}

// inside are ways to hold a lock in which more than one lease is involved. Each takes the lock,
// and returns the steps that give it back; between two steps the lock is held.
var inside = map[string]func(l *lab, c *leasehold.Client, key string) []func(){
	"reader": func(l *lab, c *leasehold.Client, key string) []func() {
		return releases(l, l.held(c.RWMutex(key).RLock(context.Background())))
	},
	"readers of different lives": func(l *lab, c *leasehold.Client, key string) []func() {
		// The reader that stays longest has the shortest lease, and is renewed.
		long := l.held(c.RWMutex(key, leasehold.WithTTL(time.Minute)).RLock(context.Background()))
		short := l.held(c.RWMutex(key, leasehold.WithTTL(life)).RLock(context.Background()))
		return append(releases(l, long), func() { time.Sleep(2 * life) }, func() { l.release(short) })
	},
	"reader beside one that expired": func(l *lab, c *leasehold.Client, key string) []func() {
		short := l.held(c.RWMutex(key, leasehold.WithTTL(time.Second), leasehold.WithoutRenewal()).RLock(context.Background()))
		long := l.held(c.RWMutex(key).RLock(context.Background()))
		return append([]func(){func() { <-short.Context().Done() }, func() { time.Sleep(100 * time.Millisecond) }}, releases(l, long)...)
	},
	"places": func(l *lab, c *leasehold.Client, key string) []func() {
		s := c.Semaphore(key, 3)
		return releases(l, l.held(s.Lock(context.Background())), l.held(s.LockN(context.Background(), 2)))
	},
	"writer that became a reader": func(l *lab, c *leasehold.Client, key string) []func() {
		lease := l.held(c.RWMutex(key).Lock(context.Background()))
		return []func(){
			func() { l.must(lease.Downgrade(context.Background())) },
			func() { l.release(lease) },
		}
	},
	"place that was handed over": func(l *lab, c *leasehold.Client, key string) []func() {
		s := c.Semaphore(key, 1)
		first, got := l.held(s.Lock(context.Background())), make(chan outcome, 1)
		go func() {
			lease, err := s.Lock(context.Background())
			got <- outcome{lease: lease, err: err}
		}()
		// A waiter that is not subscribed yet is not handed the lock: the lock stays free until the
		// waiter asks.
		eventually(l.TB, patience, func() bool { return Listening(c, key) == 1 }, func() string { return "it does not listen" })
		return []func(){func() { l.release(first) }, func() { l.release(l.receive(got, patience).lease) }}
	},
}

func releases(l *lab, leases ...*leasehold.Lease) []func() {
	var steps []func()
	for _, lease := range leases {
		steps = append(steps, func() { l.release(lease) })
	}
	return steps
}

// held returns a lease, which has to be granted.
func (l *lab) held(lease *leasehold.Lease, err error) *leasehold.Lease {
	l.Helper()
	l.must(err)
	return lease
}

// TestScripts_K13_ForeignSetNXIsExcludedWhileAnybodyIsInside: one string cannot hold all readers
// or places, but it exists while there is any, and so excludes SET NX.
func TestScripts_K13_ForeignSetNXIsExcludedWhileAnybodyIsInside(t *testing.T) {
	onScripts(t, func(l *lab, server *teststore.Redis) {
		c, _ := l.client()
		them := foreign{l, server}
		for name, enter := range inside {
			steps := enter(l, c, name)
			for _, step := range steps {
				if them.taken(name) {
					l.Errorf("%s: a foreign SET NX got in", name)
					them.leaves(name)
				}
				step()
			}
			if !them.taken(name) {
				l.Errorf("%s: SET NX fails after the last holder has left", name)
				continue
			}
			them.leaves(name)
		}
	})
}

// TestScripts_K13_ForeignHolderExcludesReadersAndPlaces is the other way round.
func TestScripts_K13_ForeignHolderExcludesReadersAndPlaces(t *testing.T) {
	onScripts(t, func(l *lab, server *teststore.Redis) {
		c, _ := l.client()
		them := foreign{l, server}
		for name, ask := range map[string]struct {
			lock, try func(context.Context) (*leasehold.Lease, error)
		}{
			"reader": {c.RWMutex("reader").RLock, c.RWMutex("reader").TryRLock},
			"writer": {c.RWMutex("writer").Lock, c.RWMutex("writer").TryLock},
			"place":  {c.Semaphore("place", 3).Lock, c.Semaphore("place", 3).TryLock},
			"mutex":  {c.Mutex("mutex").Lock, c.Mutex("mutex").TryLock},
		} {
			if !them.taken(name) {
				l.Fatalf("%s: a free key", name)
			}
			if _, err := ask.try(context.Background()); !errors.Is(err, leasehold.ErrHeld) {
				l.Errorf("%s: got the lock during a foreign hold: %v", name, err)
			}
			got := make(chan outcome, 1)
			go func() {
				lease, err := ask.lock(context.Background())
				got <- outcome{lease: lease, err: err}
			}()
			eventually(l.TB, patience, func() bool {
				snap, err := c.Inspect(context.Background(), name)
				return err == nil && len(snap.Waiters) == 1
			}, func() string { return name + " does not wait" })
			them.leaves(name) // no hint is sent: the head of the queue asks twice a second
			o := l.receive(got, 20*time.Second)
			l.must(o.err)
			l.release(o.lease)
		}
	})
}
