package locktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// foreign is a program that knows nothing but SET NX under the same key.
type foreign struct{ *rig }

func (f foreign) taken(key string) bool {
	f.Helper()
	got, err := f.server.Client().SetNX(context.Background(), "leasehold:"+key, "theirs", time.Minute).Result()
	if err != nil {
		f.Fatal(err)
	}
	return got
}

func (f foreign) leaves(key string) {
	f.Helper()
	if n := f.server.Client().Del(context.Background(), "leasehold:"+key).Val(); n != 1 {
		f.Errorf("%d keys deleted", n)
	}
}

// inside are ways to be inside without being the only one that could be. Each
// takes what it takes, and returns what gives it back, in steps between which
// somebody is inside.
var inside = map[string]func(r *rig, c *leasehold.Client, key string) []func(){
	"reader": func(r *rig, c *leasehold.Client, key string) []func() {
		return releases(r, r.must(c.RWMutex(key).RLock(context.Background())))
	},
	"readers of different lives": func(r *rig, c *leasehold.Client, key string) []func() {
		// The one that stays longest has the shortest lease, and is renewed.
		long := r.must(c.RWMutex(key, leasehold.WithTTL(time.Minute)).RLock(context.Background()))
		short := r.must(c.RWMutex(key, renewedOften()...).RLock(context.Background()))
		return append(releases(r, long), func() { time.Sleep(renewed + time.Second) }, func() { r.release(short) })
	},
	"reader beside one that expired": func(r *rig, c *leasehold.Client, key string) []func() {
		short := r.must(c.RWMutex(key, leasehold.WithTTL(time.Second), leasehold.WithoutRenewal()).RLock(context.Background()))
		long := r.must(c.RWMutex(key).RLock(context.Background()))
		return append([]func(){func() { <-short.Context().Done() }, func() { time.Sleep(100 * time.Millisecond) }}, releases(r, long)...)
	},
	"places": func(r *rig, c *leasehold.Client, key string) []func() {
		s := c.Semaphore(key, 3)
		return releases(r, r.must(s.Lock(context.Background())), r.must(s.LockN(context.Background(), 2)))
	},
	"writer that became a reader": func(r *rig, c *leasehold.Client, key string) []func() {
		l := r.must(c.RWMutex(key).Lock(context.Background()))
		return []func(){
			func() {
				if err := l.Downgrade(context.Background()); err != nil {
					r.Error(err)
				}
			},
			func() { r.release(l) },
		}
	},
	"place that was handed over": func(r *rig, c *leasehold.Client, key string) []func() {
		s := c.Semaphore(key, 1)
		first, got := r.must(s.Lock(context.Background())), make(chan *leasehold.Lease, 1)
		go func() {
			l, err := s.Lock(context.Background())
			if err != nil {
				r.Error(err)
			}
			got <- l
		}()
		// Who does not listen yet is not handed the lock: it stays free until asked for.
		waitFor(r.T, func() bool { return Listening(c, key) == 1 })
		return []func(){func() { r.release(first) }, func() { r.release(<-got) }}
	},
}

func releases(r *rig, leases ...*leasehold.Lease) []func() {
	var steps []func()
	for _, l := range leases {
		steps = append(steps, func() { r.release(l) })
	}
	return steps
}

func (r *rig) must(l *leasehold.Lease, err error) *leasehold.Lease {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// TestRedis_K13_ForeignSetNXIsExcludedWhileAnybodyIsInside: readers and places
// are more than one string can hold, and still keep others out by it.
func TestRedis_K13_ForeignSetNXIsExcludedWhileAnybodyIsInside(t *testing.T) {
	both(t, func(r *rig) {
		c, them := r.client(r.server.Addr()), foreign{r}
		for name, enter := range inside {
			steps := enter(r, c, name)
			for _, step := range steps {
				if them.taken(name) {
					r.Errorf("%s: a foreign SET NX got in", name)
					them.leaves(name)
				}
				step()
			}
			if !them.taken(name) {
				r.Errorf("%s: not free for others after the last has left", name)
				continue
			}
			them.leaves(name)
		}
	})
}

// TestRedis_K13_ForeignHolderExcludesReadersAndPlaces is the other way round.
func TestRedis_K13_ForeignHolderExcludesReadersAndPlaces(t *testing.T) {
	both(t, func(r *rig) {
		c, them := r.client(r.server.Addr()), foreign{r}
		for name, ask := range map[string]struct {
			lock, try func(context.Context) (*leasehold.Lease, error)
		}{
			"reader": {c.RWMutex("reader").RLock, c.RWMutex("reader").TryRLock},
			"writer": {c.RWMutex("writer").Lock, c.RWMutex("writer").TryLock},
			"place":  {c.Semaphore("place", 3).Lock, c.Semaphore("place", 3).TryLock},
			"mutex":  {c.Mutex("mutex").Lock, c.Mutex("mutex").TryLock},
		} {
			if !them.taken(name) {
				r.Fatalf("%s: a free key", name)
			}
			if _, err := ask.try(context.Background()); !errors.Is(err, leasehold.ErrHeld) {
				r.Errorf("%s: got in beside a foreign holder: %v", name, err)
			}
			got := make(chan *leasehold.Lease, 1)
			go func() {
				l, err := ask.lock(context.Background())
				if err != nil {
					r.Error(err)
				}
				got <- l
			}()
			waitFor(r.T, func() bool {
				snap, err := c.Inspect(context.Background(), name)
				return err == nil && len(snap.Waiters) == 1
			})
			them.leaves(name) // nobody tells: the head of the queue looks twice a second
			select {
			case l := <-got:
				r.release(l)
			case <-time.After(20 * time.Second):
				r.Fatalf("%s: still waiting for a lock that is free", name)
			}
		}
	})
}
