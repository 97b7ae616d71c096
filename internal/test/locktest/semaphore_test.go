package locktest_test

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// semaphoreRows are the K cases of places.
var semaphoreRows = []row{
	{"K8_DeadHoldersPlaceReturnsOnce", func(l *lab) {
		a, m := l.client(leasehold.WithTTL(kept)) // until all wait
		b, _ := l.client()
		dead := l.enter(places(2, 3), a)
		live := l.enter(places(1, 3), b)
		got := l.queue(context.Background(), places(1, 3), b, "0", "1", "2")
		m.die()
		var in []*leasehold.Lease
		for range 2 {
			o := l.receive(got, kept+slack)
			l.atTheEndOf(dead, o)
			in = append(in, o.lease)
		}
		l.wantErr(dead.Release(), leasehold.ErrLost)
		l.wantPlaces(b, 3, 1)
		l.release(live)
		l.releaseAll(append(in, l.entered(got, slack)))
		l.wantFree(0)
	}},
	{"K9_DisagreementOnTheLimitIsAnErrorAndEvictsNobody", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		in := []*leasehold.Lease{l.enter(places(2, 3), a), l.enter(places(1, 3), a)}
		got := l.queue(context.Background(), places(1, 3), a, "waiter")
		before := l.picture(a)
		for _, u := range []use{places(1, 2), places(1, 4), places(4, 4), places(1, 1), reader} {
			l.refused(u, b, leasehold.ErrMismatch)
			_, err := u(b, l.key, leasehold.WithMaxWait(life)).lock(context.Background())
			l.wantErr(err, leasehold.ErrMismatch)
		}
		l.same(a, before, "disagreement")
		for _, lease := range in {
			if err := lease.Extend(context.Background(), life); err != nil {
				l.Errorf("evicted: %v", err)
			}
		}
		l.releaseAll(in)
		next := l.entered(got, slack)
		l.refused(places(1, 4), b, leasehold.ErrMismatch)
		l.release(next)
		l.release(l.enter(places(4, 4), b)) // a free semaphore accepts any limit
	}},
	{"K10_ResizeToFewerTakesNothingAway", func(l *lab) {
		a, _ := l.client(leasehold.WithTTL(kept))
		b, _ := l.client()
		var held []*leasehold.Lease
		for range 5 {
			held = append(held, l.enter(places(1, 5), a))
		}
		l.must(b.Semaphore(l.key, 5).Resize(context.Background(), 2))
		got := l.queue(context.Background(), places(1, 2), b, "waiter")
		time.Sleep(kept) // all are renewed
		for i, lease := range held {
			if got := lease.Places(); lease.State() != leasehold.Held || !slices.Equal(got, []int{i}) {
				l.Errorf("place %d is %v, with the numbers %v", i, lease.State(), got)
			}
			if i == 4 {
				break // the waiter fits in next to the last holder
			}
			if len(got) > 0 {
				l.Errorf("a grant with %d of 2 places taken", 5-i)
			}
			l.refused(places(1, 2), b, leasehold.ErrHeld)
			l.refused(places(1, 5), b, leasehold.ErrMismatch)
			l.release(lease)
		}
		next := l.entered(got, slack)
		l.wantPlaces(b, 2, 0)
		l.release(held[4], next)
		l.wantFree(0)
	}},
	{"K10_WaiterForMoreThanThereIsNowIsTold", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		first := l.enter(places(1, 5), a)
		got := make(chan outcome, 2)
		l.await(context.Background(), places(5, 5), b, "many", got)
		l.await(context.Background(), places(1, 5), b, "one", got)
		l.must(a.Semaphore(l.key, 5).Resize(context.Background(), 2))
		for range cap(got) {
			// A waiter that is dropped notices when it asks, as the first waiter of its client.
			o := l.receive(got, window+slack)
			if o.name == "many" {
				l.wantErr(o.err, leasehold.ErrMismatch)
				continue
			}
			l.must(o.err)
			defer l.release(o.lease)
		}
		l.release(first)
	}},
}

// wantPlaces checks how many places are taken in the store, and how many are waited for.
func (l *lab) wantPlaces(c *leasehold.Client, taken, waiting int) {
	l.Helper()
	snap := l.picture(c)
	used := 0
	for _, h := range snap.Holders {
		used += h.Weight
	}
	if used != taken || len(snap.Waiters) != waiting {
		l.Errorf("%d places taken and %d wait, want %d and %d", used, len(snap.Waiters), taken, waiting)
	}
}
