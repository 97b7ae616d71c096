package locktest_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// evenness runs a hundred waiters of four clients that queue again as soon as they are served.
// Each must be served equally often, and a waiter with a live ticket must not be overtaken. In
// real time there are fewer waiters, and only the order is checked.
func evenness(l *lab) {
	clients, each, rounds := 4, 25, 10
	if l.store.real {
		each, rounds = 5, 3
	}
	ctx, enough := context.WithTimeout(context.Background(), 2*patience)
	defer enough()
	q := &queue{enough: enough, goal: clients * each * rounds}
	a, _ := l.client()
	first := l.lock(a) // all start together
	var wg sync.WaitGroup
	for i := range clients {
		c, _ := l.client()
		for j := range each {
			wg.Go(func() {
				if err := q.wait(ctx, c, l.key, i*each+j); err != nil {
					l.Error(err)
				}
			})
		}
	}
	l.listening(a, clients*each)
	l.release(first)
	wg.Wait()
	all := q.served[:min(len(q.served), q.goal)]
	if len(all) < q.goal {
		l.Errorf("only %d of %d served in time", len(all), q.goal)
	}
	least, most := rounds-1, rounds+1
	if l.store.real {
		least, most = 1, len(all)
	}
	times := make(map[int]int)
	for _, s := range all {
		times[s.waiter]++
	}
	for i := range clients * each {
		if times[i] < least || times[i] > most {
			l.Errorf("waiter %d was served %d times, want %d to %d", i, times[i], least, most)
		}
	}
	if n := overtaken(all); n > 0 {
		l.Errorf("%d waiters were overtaken by a later call", n)
	}
}

// served is one lock that a waiter has got.
type served struct {
	waiter int
	called time.Time // Lock was called
	// queued is when the waiter learned of the place that it kept to the end.
	queued time.Time
	token  int64
}

// queue collects the waiters in the order of their service, and calls enough at the goal.
type queue struct {
	enough context.CancelFunc
	goal   int

	mu     sync.Mutex
	served []served
}

func (q *queue) add(s served) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.served = append(q.served, s); len(q.served) == q.goal {
		q.enough()
	}
}

// wait takes the lock again and again.
func (q *queue) wait(ctx context.Context, c *leasehold.Client, key string, waiter int) error {
	for {
		s := served{waiter: waiter, called: time.Now()}
		place := 0
		observed := leasehold.ObserveWait(ctx, func(e leasehold.WaitEvent) {
			// A greater place than before belongs to a new ticket: the previous ticket has expired.
			if place == 0 || e.Position > place {
				s.queued = time.Now()
			}
			place = e.Position
		})
		l, err := c.Mutex(key).Lock(observed)
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return err
		}
		s.token = l.Token()
		q.add(s)
		if err := l.Release(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// overtaken counts the waiters that were served after a call that began when their place was
// already known. Their ticket lived, so the store had queued them first.
func overtaken(all []served) int {
	slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.token, b.token) })
	n := 0
	var lastCall time.Time // among the calls with a smaller token
	for _, s := range all {
		if !s.queued.IsZero() && lastCall.After(s.queued) {
			n++
		}
		if s.called.After(lastCall) {
			lastCall = s.called
		}
	}
	return n
}
