package locktest_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

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
func (q *queue) wait(ctx context.Context, c *leasehold.Client, waiter int) error {
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
		l, err := c.Mutex("even").Lock(observed)
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

// TestRedis_HundredWaitersAreServedEvenlyAndNoneIsOvertaken has them queue again
// as soon as they are served.
func TestRedis_HundredWaitersAreServedEvenlyAndNoneIsOvertaken(t *testing.T) {
	both(t, func(r *rig) {
		const clients, each, rounds = 4, 25, 20
		ctx, enough := context.WithTimeout(context.Background(), time.Minute)
		defer enough()
		q := &queue{enough: enough, goal: clients * each * rounds}
		opener := r.client(r.server.Addr())
		first := r.lock(opener, "even") // all start together
		var wg sync.WaitGroup
		for i := range clients {
			c := r.client(r.server.Addr())
			for j := range each {
				wg.Go(func() {
					if err := q.wait(ctx, c, i*each+j); err != nil {
						r.Error(err)
					}
				})
			}
		}
		waitFor(r.T, func() bool {
			snap, err := opener.Inspect(ctx, "even")
			return err == nil && len(snap.Waiters) == clients*each
		})
		r.release(first)
		wg.Wait()
		all := q.served[:min(len(q.served), q.goal)]
		index := jain(all, clients*each)
		late := overtaken(all)
		r.Logf("%d served, Jain index %.4f, %d overtaken", len(all), index, late)
		if len(all) < q.goal {
			r.Errorf("only %d of %d served in a minute", len(all), q.goal)
		}
		if index < 0.99 {
			r.Errorf("Jain index %.4f, want at least 0.99", index)
		}
		if late > 0 {
			r.Errorf("%d were overtaken by somebody who came later", late)
		}
	})
}

func TestEvenness_MeasuresWhatItSays(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	fair := []served{{0, at(0), at(1), 1}, {1, at(0), at(2), 2}, {0, at(3), at(4), 3}, {1, at(5), at(6), 4}}
	if n, index := overtaken(fair), jain(fair, 2); n != 0 || index != 1 {
		t.Errorf("in turn: %d overtaken, index %v", n, index)
	}
	unfair := []served{{0, at(0), at(1), 1}, {1, at(0), at(2), 4}, {0, at(3), at(4), 2}, {0, at(5), at(6), 3}}
	if n, index := overtaken(unfair), jain(unfair, 2); n != 1 || index != 0.8 {
		t.Errorf("one before the other: %d overtaken, index %v", n, index)
	}
}
