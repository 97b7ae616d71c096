package locktest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/play"
)

// mortality is the time to live of the leases of a crowd.
const mortality = 300 * time.Millisecond

// contended are the locks of a crowd: a mutex, both sides of a read-write lock, and places of a semaphore,
// which a mutex of the same key excludes.
func contended(key string) []play.Lock {
	rw := func(c *leasehold.Client, opts ...leasehold.Option) *leasehold.RWMutex {
		return c.RWMutex(key+"/rw", opts...)
	}
	writer, all := play.Mutex(key+"/rw"), play.Mutex(key+"/places")
	writer.Of = func(c *leasehold.Client, opts ...leasehold.Option) leasehold.Locker { return rw(c, opts...) }
	reader, places := writer, all
	reader.Mode, places.Mode, places.Limit, places.Weight = history.Shared, history.Shared, 5, 2
	reader.Of = func(c *leasehold.Client, opts ...leasehold.Option) leasehold.Locker { return rw(c, opts...).RLocker() }
	places.Of = func(c *leasehold.Client, opts ...leasehold.Option) leasehold.Locker {
		return c.Semaphore(key+"/places", places.Limit, opts...).Places(places.Weight)
	}
	return []play.Lock{play.Mutex(key + "/mutex"), writer, reader, reader, places, places, all}
}

// crowd is W1: clients of processes that die contend for locks of all kinds.
func crowd(l *lab) {
	const processes, enough = 4, 100
	lasting := 6 * time.Second
	if testing.Short() {
		lasting /= 2
	}
	rules := history.Rules{Quick: true, Tokens: true, Queue: !l.store.real, Steady: !l.store.real}
	locks, start := play.New(l.TB, rules, mortality, time.Second), time.Now()
	goesOn := func() bool {
		if lasts := time.Since(start); lasts > lasting {
			return l.store.real && lasts < 2*patience && locks.Grants() < enough
		}
		return true
	}
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			for n := 0; goesOn(); n++ {
				l.generation(fmt.Sprintf("%d-%d", i, n), locks)
			}
		})
	}
	wg.Wait()
	if n := locks.Judge().Grants; n < enough {
		l.Errorf("only %d grants in %v", n, time.Since(start))
	}
}

// generation runs a process with some contenders and kills it while they work: from then on its requests
// no longer reach the store. The contenders still run for a while.
func (l *lab) generation(name string, locks *play.Locks) {
	const contenders, pause = 10, 20 * time.Millisecond
	all := contended(l.key)
	m := l.process()
	client, err := leasehold.New(m)
	if err != nil {
		l.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+rand.N(time.Second)+2*mortality)
	defer cancel()
	deadline, _ := ctx.Deadline()
	death := deadline.Add(-2 * mortality)
	time.AfterFunc(time.Until(death), m.die)
	var wg sync.WaitGroup
	for i := range contenders {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				locks.Take(ctx, all[rand.IntN(len(all))], client, name, fmt.Sprintf("%s.%d.%d", name, i, n))
				time.Sleep(rand.N(pause + 1))
			}
		})
	}
	wg.Wait()
	_ = client.Close() // it cannot give anything back
	locks.Add(death, name, "a death")
}

// evenness is P6: a hundred waiters of four clients queue again as soon as they are served. Each must be
// served equally often, and the history must show no waiter with a live ticket that was overtaken. In real
// time there are fewer waiters, and only the order is checked.
func evenness(l *lab) {
	clients, each, rounds := 4, 25, 10
	if l.store.real {
		each, rounds = 5, 3
	}
	ctx, enough := context.WithTimeout(context.Background(), 2*patience)
	defer enough()
	lock := play.Mutex(l.key)
	lock.Wait, lock.Idle = int64(2*patience), true // a caller that asks again at once overtakes if it can
	locks := play.New(l.TB, history.Rules{Quick: true, Tokens: true, Queue: true, Steady: !l.store.real}, patience/2, 0)
	var served atomic.Int64
	times := make([]int, clients*each)
	a, _ := l.client()
	first := l.lock(a) // all start together
	var c *leasehold.Client
	var wg sync.WaitGroup
	for i := range times {
		if i%each == 0 {
			c, _ = l.client()
		}
		c := c
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if locks.Take(ctx, lock, c, fmt.Sprint(i/each), fmt.Sprint(i, ".", n)) {
					times[i]++
					if served.Add(1) == int64(len(times)*rounds) {
						enough()
					}
				}
			}
		})
	}
	l.listening(a, len(times))
	l.release(first)
	wg.Wait()
	locks.Judge()
	if int(served.Load()) < len(times)*rounds {
		l.Errorf("only %d of %d served in time", served.Load(), len(times)*rounds)
	}
	least, most := rounds-1, rounds+1
	if l.store.real {
		least, most = 1, len(times)*rounds
	}
	for i, n := range times {
		if n < least || n > most {
			l.Errorf("waiter %d was served %d times, want %d to %d", i, n, least, most)
		}
	}
}
