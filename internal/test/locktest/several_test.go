package locktest_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// severalRows are the K cases of locks that are taken together.
var severalRows = []row{
	{"K11_OppositeOrdersMakeProgress", func(l *lab) {
		const clients, rounds = 8, 10
		ctx, cancel := context.WithTimeout(context.Background(), patience/2)
		defer cancel()
		var inside sync.Map // the holder of each key
		var wg sync.WaitGroup
		for range clients {
			c, _ := l.client()
			wg.Go(func() {
				for range rounds {
					l.takeAll(ctx, c, &inside)
				}
			})
		}
		wg.Wait()
		l.allFree("a", "b", "c")
	}},
	{"K11_AllOrNothing", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		taken := l.on("b").lock(b)
		_, err := l.mixture(a).TryLock(context.Background())
		l.wantErr(err, leasehold.ErrHeld)
		l.allFree("a", "c")
		l.release(taken)
		whole, err := l.mixture(a).TryLock(context.Background())
		l.must(err)
		for _, name := range []string{"a", "b", "c"} {
			l.on(name).refused(mutex, b, leasehold.ErrHeld)
		}
		l.release(whole)
		l.allFree("a", "b", "c")
	}},
	{"K12_CancelledHalfWayLeavesNothing", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		taken := l.on("b").lock(b)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		got := make(chan error, 1)
		go func() {
			_, err := l.mixture(a).Lock(ctx)
			got <- err
		}()
		l.on("b").wantQueue(b, 1)
		l.on("a").refused(mutex, b, leasehold.ErrHeld)
		cancel()
		select {
		case err := <-got:
			l.wantErr(err, leasehold.ErrHeld, context.Canceled)
		case <-time.After(2 * time.Second):
			l.Fatal("it does not return")
		}
		l.allFree("a", "c")
		l.release(taken)
		l.allFree("b")
	}},
	{"K12_LossOfOneIsLossOfAll/broken", func(l *lab) {
		l.lose(func(c *leasehold.Client, p *leasehold.Lease) {
			l.must(c.Break(context.Background(), p.Key(), p.ID(), "test"))
		}, leasehold.ErrBroken)
	}},
	{"K12_LossOfOneIsLossOfAll/deleted", func(l *lab) {
		_, m := l.client()
		l.lose(func(_ *leasehold.Client, p *leasehold.Lease) {
			_, err := m.store.Release(context.Background(), driver.Ref{Key: p.Key(), ID: p.ID()})
			l.must(err)
		}, leasehold.ErrLost)
	}},
}

// mixture is several locks of different kinds, named in another order than that
// of their keys.
func (l *lab) mixture(c *leasehold.Client) *leasehold.Multi {
	return leasehold.All(c.Semaphore(l.key+"/c", 2), c.Mutex(l.key+"/a"), c.RWMutex(l.key+"/b").RLocker())
}

// takeAll takes some of three locks, in any order, and checks that they have no other holder.
func (l *lab) takeAll(ctx context.Context, c *leasehold.Client, inside *sync.Map) {
	names := []string{"a", "b", "c"}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:2+rand.IntN(2)]
	var locks []leasehold.Part
	for _, name := range names {
		locks = append(locks, c.Mutex(l.key+"/"+name))
	}
	whole, err := leasehold.All(locks...).Lock(ctx)
	if err != nil {
		l.Errorf("no progress: %v", err)
		return
	}
	for _, p := range whole.Parts() {
		if other, taken := inside.Swap(p.Key(), p); taken {
			l.Errorf("%s is held by %v and %v", p.Key(), other.(*leasehold.Lease).ID(), p.ID())
		}
	}
	for _, p := range whole.Parts() {
		inside.Delete(p.Key())
	}
	l.release(whole)
}

// lose ends one part of a lease of several, and expects the end of all.
func (l *lab) lose(end func(*leasehold.Client, *leasehold.Lease), cause error) {
	a, _ := l.client(leasehold.WithTTL(kept))
	b, _ := l.client()
	for i := range 3 {
		whole, err := l.mixture(a).Lock(context.Background())
		l.must(err)
		end(b, whole.Parts()[i])
		l.ended(whole, kept) // by its next renewal at the latest
		l.wantErr(context.Cause(whole.Context()), cause)
		if whole.State() != leasehold.Lost {
			l.Errorf("the whole is %v", whole.State())
		}
		l.wantErr(whole.Release(), leasehold.ErrLost, cause)
		l.allFree("a", "b", "c")
	}
}

// allFree checks that the named locks soon have no holders and no waiters.
func (l *lab) allFree(names ...string) {
	l.Helper()
	for _, name := range names {
		l.on(name).wantFree(clean)
	}
}
