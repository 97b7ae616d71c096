package locktest_test

import (
	"context"
	"strings"

	"github.com/leasehold-go/leasehold"
)

// roomRows are K13: all kinds of locks share the one room of a key.
var roomRows = func() []row {
	uses := []struct {
		name   string
		use    use
		shared string // the kind that can hold the lock at the same time
	}{
		{"mutex", mutex, ""},
		{"writer", writer, ""},
		{"reader", reader, "reader"},
		{"place", places(1, 3), "place"},
		{"all places", places(3, 3), ""},
	}
	var rows []row
	for _, in := range uses {
		rows = append(rows, row{"K13_KindsExcludeEachOther/" + in.name + " inside", func(l *lab) {
			a, _ := l.client()
			b, _ := l.client()
			lease := l.enter(in.use, a)
			for _, out := range uses {
				switch {
				case in.shared != "" && in.shared == out.shared:
					l.release(l.enter(out.use, b))
				case strings.Contains(in.name, "place") && out.name == "reader", in.name == "reader" && strings.Contains(out.name, "place"):
					l.refused(out.use, b, leasehold.ErrMismatch) // a semaphore has a limit, readers do not
				default:
					l.refused(out.use, b, leasehold.ErrHeld)
				}
			}
			// A waiter gets the lock when the holder leaves.
			got := l.queue(context.Background(), mutex, b, "mutex")
			l.release(lease)
			next := l.entered(got, slack)
			if next.Token() <= lease.Token() {
				l.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			l.release(next)
			l.wantFree(0)
		}})
	}
	return append(rows,
		row{"K13_WhatIsAskedUnderALeaseIsHeldAgainstIt", func(l *lab) {
			c, _ := l.client()
			for _, row := range []struct {
				outer, inner use
				want         error
			}{
				{mutex, mutex, nil},
				{mutex, reader, nil},
				{mutex, places(3, 3), nil},
				{reader, reader, nil},
				{reader, mutex, leasehold.ErrMismatch}, // no upgrade
				{reader, writer, leasehold.ErrMismatch},
				{reader, places(1, 3), leasehold.ErrMismatch},
				{places(1, 3), places(1, 3), nil}, // another place
				{places(1, 3), places(1, 4), leasehold.ErrMismatch},
				{places(1, 3), reader, leasehold.ErrMismatch},
				{places(1, 3), mutex, leasehold.ErrMismatch},
			} {
				outer := l.enter(row.outer, c)
				inner, err := row.inner(c, l.key, leasehold.WithMaxWait(life)).lock(outer.Context())
				if row.want == nil {
					l.must(err)
					l.release(inner)
				}
				l.wantErr(err, row.want)
				if n := l.queued(c); n > 0 || outer.State() != leasehold.Held {
					l.Errorf("%d wait, the outer lease is %v", n, outer.State())
				}
				l.release(outer)
			}
			l.wantFree(0)
		}},
	)
}()

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
