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
