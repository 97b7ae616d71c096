package locktest_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// evenness has a hundred waiters of four clients queue again as soon as they
// are served: all are served equally often, and nobody is overtaken whose
// ticket lives. In real time fewer are only served at all, and in order.
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
	index, late := jain(all, clients*each), overtaken(all)
	l.Logf("%d served, Jain index %.4f, %d overtaken", len(all), index, late)
	if len(all) < q.goal {
		l.Errorf("only %d of %d served in time", len(all), q.goal)
	}
	if index < 0.99 && !l.store.real {
		l.Errorf("Jain index %.4f, want at least 0.99", index)
	}
	for i := range clients * each {
		if !slices.ContainsFunc(all, func(s served) bool { return s.waiter == i }) {
			l.Errorf("waiter %d was never served", i)
		}
	}
	if late > 0 {
		l.Errorf("%d were overtaken by somebody who came later", late)
	}
}

// served is one lock that a waiter got.
type served struct {
	waiter int
	called time.Time // Lock was called
	// queued is when the waiter knew of the place that it kept to the end.
	queued time.Time
	token  int64
}

// queue collects who is served, until enough have been.
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
			// A greater place than before is that of another ticket: the one
			// before has died.
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

// overtaken counts who was served after somebody who called when this one's
// place was known already: its ticket lived, so the store had it first.
func overtaken(all []served) int {
	slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.token, b.token) })
	n := 0
	var lastCall time.Time // of those with a smaller token
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

// jain is Jain's fairness index of how often each of n was served: 1 if all
// were equally often, 1/n if one was always.
func jain(all []served, n int) float64 {
	counts := make([]float64, n)
	for _, s := range all {
		counts[s.waiter]++
	}
	var sum, squares float64
	for _, x := range counts {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(n) * squares)
}
