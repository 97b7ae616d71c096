package locktest_test

import (
	"context"

	"github.com/leasehold-go/leasehold"
)

// semaphoreRows are the K cases of places.
var semaphoreRows = []row{
	{"K8_DeadHoldersPlaceReturnsOnce", func(l *lab) {
		a, m := l.client(leasehold.WithTTL(life))
		b, _ := l.client()
		dead, live := l.enter(places(2, 3), a), l.enter(places(1, 3), b)
		m.die()
		next := l.enter(places(2, 3), b)
		l.wantErr(dead.Release(), leasehold.ErrLost)
		l.refused(places(1, 3), b, leasehold.ErrHeld)
		l.release(live, next)
		l.wantFree(0)
	}},
	{"K9_DisagreementOnTheLimitIsAnErrorAndEvictsNobody", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		in := l.enter(places(3, 3), a)
		got := l.queue(context.Background(), places(1, 3), a, "waiter")
		before := l.picture(a)
		for _, u := range []use{places(1, 2), places(1, 4), places(4, 4), places(1, 1), reader} {
			l.refused(u, b, leasehold.ErrMismatch)
			_, err := u(b, l.key, leasehold.WithMaxWait(life)).lock(context.Background())
			l.wantErr(err, leasehold.ErrMismatch)
		}
		l.same(a, before, "disagreement")
		l.release(in)
		l.release(l.entered(got, slack))
		l.release(l.enter(places(4, 4), b)) // a free semaphore accepts any limit
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
