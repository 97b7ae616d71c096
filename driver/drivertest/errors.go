package drivertest

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/driver"
)

// errorRows: an error is never a no.
var errorRows = []row{
	{"errors/an ended context", 0,
		"if the caller's time is up, the outcome is unknown; an answer that the lock is busy or lost would be a guess",
		func(l *lab, p, q *process) {
			q.acquire("a", driver.Granted, in(l.key+"/2"))
			ctx, cancel := context.WithCancel(context.Background())
			cancel()

			_, err := p.d.Acquire(ctx, p.request("b", nil))
			l.unanswered("acquire", err)
			if errors.Is(err, driver.ErrUnavailable) {
				q.acquire("c", driver.Granted) // it certainly had no effect
			}
			held := l.ref("a", at(l.key+"/2"))
			answers := 0
			p.d.Renew(ctx, []driver.Ref{held, held}, func(_ int, _ driver.Reply, err error) {
				answers++
				l.unanswered("renew", err)
			})
			if answers != 2 {
				l.Fatalf("%d answers to a renewal of 2", answers)
			}
			_, err = p.d.Release(ctx, held)
			l.unanswered("release", err)
			if errors.Is(err, driver.ErrUnavailable) {
				q.renew("a", driver.Granted, at(held.Key))
			}
		}},
	{"errors/a closed driver", 0,
		"a call after Close fails with a clear error, and other drivers on the store go on",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			d := l.cfg.Open(l)
			if err := d.Close(); err != nil {
				l.Fatalf("close: %v", err)
			}
			if _, err := d.Acquire(context.Background(), p.request("b", nil)); !errors.Is(err, driver.ErrClosed) {
				l.Errorf("acquire: %v, want driver.ErrClosed", err)
			}
			d.Renew(context.Background(), []driver.Ref{l.ref("a")}, func(_ int, _ driver.Reply, err error) {
				if !errors.Is(err, driver.ErrClosed) {
					l.Errorf("renew: %v, want driver.ErrClosed", err)
				}
			})
			if _, err := d.Release(context.Background(), l.ref("a")); !errors.Is(err, driver.ErrClosed) {
				l.Errorf("release: %v, want driver.ErrClosed", err)
			}
			q.renew("a", driver.Granted)
		}},
}

// unanswered fails the row unless err means that the outcome is unknown.
func (l *lab) unanswered(what string, err error) {
	l.Helper()
	if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, context.Canceled) {
		l.Errorf("%s with an ended context: %v, want driver.ErrUnavailable or the context's error", what, err)
	}
}
