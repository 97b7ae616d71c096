package drivertest

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// reentryRows test several leases of one owner in the same room.
var reentryRows = []row{
	{"reentry/the same owner enters again", Reentry,
		"code that holds a lock calls code that takes it: holds are counted, the token stays, the last release frees",
		func(l *lab, p, q *process) {
			me := reenter("user-1")
			first := p.acquire("a1", driver.Granted, me)
			for i, name := range []string{"a2", "a3", "a4", "a5"} {
				got := p.acquire(name, driver.Granted, me)
				if got.Token != first.Token || got.Holds != i+2 {
					l.Fatalf("token %d, holds %d; want %d and %d", got.Token, got.Holds, first.Token, i+2)
				}
			}
			for _, name := range []string{"a1", "a4", "a2", "a5"} {
				p.release(name, driver.Released)
				p.release(name, driver.Gone)
				q.acquire("b", driver.Busy, reenter("user-2"))
			}
			l.wantToken(p.renew("a3", driver.Granted), first.Token)
			p.release("a3", driver.Released)
			l.greater(q.acquire("b", driver.Granted, reenter("user-2")).Token, first.Token)
		}},
	{"reentry/G13 owners of any name enter again", Reentry,
		"if a store treats a name as empty, its owner waits for itself",
		func(l *lab, p, q *process) {
			for _, name := range []string{"-", "=", "0", "%2D", "+", " "} {
				p.acquire("a", driver.Granted, reenter(name))
				p.acquire("b", driver.Granted, reenter(name))
				q.acquire("c", driver.Busy)
				q.acquire("d", driver.Busy, reenter(name+name))
				p.release("a", driver.Released)
				p.release("b", driver.Released)
			}
		}},
	{"reentry/asking twice enters once", Reentry,
		"a repeated request must not count as a deeper one, or the lock outlives its releases",
		func(l *lab, p, q *process) {
			me := reenter("user-1")
			p.acquire("a1", driver.Granted, me)
			for range 2 {
				if got := p.acquire("a2", driver.Granted, me); got.Holds != 2 {
					l.Fatalf("holds %d, want 2", got.Holds)
				}
			}
			p.release("a2", driver.Released)
			p.release("a1", driver.Released)
			q.acquire("b", driver.Granted)
		}},
	{"reentry/other owners are strangers", Reentry,
		"owners are compared in full, and only if the request sets Reenter: an equal prefix, or an equal Owner without it, gives no access",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, reenter("user-1"))
			q.acquire("b", driver.Busy, reenter("user-10"))
			q.acquire("b", driver.Busy, reenter("user-"))
			q.acquire("b", driver.Busy, reenter("User-1"))
			q.acquire("b", driver.Busy, reenter("user-1 "))
			q.acquire("b", driver.Busy, owner("user-1"))
			p.release("a", driver.Released)
			p.acquire("c", driver.Granted, owner("user-1"))
			q.acquire("b", driver.Busy, reenter("user-1"))
			q.acquire("b", driver.Busy, owner("user-1"))
		}},
	{"reentry/each hold has its own life", Reentry,
		"an inner hold neither prolongs nor shortens the outer one",
		func(l *lab, p, q *process) {
			me := reenter("user-1")
			p.acquire("outer", driver.Granted, me)
			p.acquire("inner", driver.Granted, me, ttl(l.brief))
			l.pass(l.brief)
			p.renew("inner", driver.Gone)
			p.renew("outer", driver.Granted)
			p.release("outer", driver.Released)
			q.acquire("b", driver.Granted)
			q.release("b", driver.Released)

			start := time.Now()
			first := p.acquire("outer2", driver.Granted, me, ttl(2*l.brief))
			p.acquire("inner2", driver.Granted, me)
			l.intime(start, 2*l.brief-rounding)
			l.pass(2 * l.brief)
			p.renew("outer2", driver.Gone)
			q.acquire("c", driver.Busy)
			if got := p.renew("inner2", driver.Granted); got.Token != first.Token || got.Holds != 1 {
				l.Fatalf("token %d, holds %d; want %d and 1", got.Token, got.Holds, first.Token)
			}
		}},
	{"reentry/passes the queue", Reentry | Queue,
		"the waiters wait for this very owner: if it had to queue behind them, that would be a deadlock",
		func(l *lab, p, q *process) {
			me := reenter("user-1")
			p.acquire("a1", driver.Granted, me)
			q.acquire("b", driver.Queued, waits(long))
			p.acquire("a2", driver.Granted, me)
			p.acquire("a3", driver.Granted, me, waits(long))
			for _, name := range []string{"a1", "a2", "a3"} {
				q.acquire("b", driver.Queued, waits(long))
				p.release(name, driver.Released)
			}
			q.acquire("b", driver.Granted, waits(long))
		}},
	{"reentry/HR_D2 an owner that reads cannot ask to write, nor the other way round", Reentry | Shared,
		"an owner that waits for itself waits for ever, also if it asks under another context",
		func(l *lab, p, q *process) {
			me, you := reenter("user-1"), reenter("user-2")
			refused := func(name string, opts ...option) {
				l.Helper()
				for _, more := range [][]option{nil, {waits(long)}} {
					if l.cfg.Without&Queue != 0 && more != nil {
						continue
					}
					q.refused(name, driver.ErrMismatch, append(more, opts...)...)
				}
			}
			p.acquire("r1", driver.Granted, shared)
			p.acquire("r2", driver.Granted, shared, me)
			refused("w", me)
			q.acquire("w", driver.Busy, you)
			q.acquire("w", driver.Busy, owner("user-1")) // an equal Owner without Reenter is another owner
			q.acquire("r3", driver.Granted, shared, me)
			for _, name := range []string{"r1", "r2", "r3"} {
				p.release(name, driver.Released)
			}
			p.acquire("w1", driver.Granted, me)
			refused("r", shared, me)
			q.acquire("r", driver.Busy, shared, you)
			p.acquire("w2", driver.Granted, me)
			p.release("w2", driver.Released)
			if l.cfg.Without&Downgrade == 0 {
				p.acquire("w1", driver.Granted, lower)
				refused("w", me)
				q.acquire("r", driver.Granted, shared, me)
				p.release("r", driver.Released)
			}
			p.release("w1", driver.Released)
			q.acquire("w", driver.Granted, me)
		}},
}
