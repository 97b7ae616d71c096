package drivertest

import (
	"github.com/leasehold-go/leasehold/driver"
)

// downgradeRows test a writer that becomes a reader.
var downgradeRows = []row{
	{"downgrade/HR_A3 in one step", Shared | Downgrade,
		"the writer reads on, and no other writer may be granted in between; it is the same lease, with the same token",
		func(l *lab, p, q *process) {
			for _, become := range []option{shared, lower} { // one that may also take a lease, and one that may not
				first := p.acquire("a", driver.Granted)
				q.acquire("r", driver.Busy, shared)
				for range 2 { // a repetition has no effect
					l.wantToken(p.acquire("a", driver.Granted, become), first.Token)
				}
				q.acquire("r", driver.Granted, shared)
				q.acquire("w", driver.Busy)
				p.renew("a", driver.Granted)
				p.release("a", driver.Released)
				q.acquire("w", driver.Busy)
				q.release("r", driver.Released)
				q.acquire("w", driver.Granted)
				q.release("w", driver.Released)
			}
		}},
	{"downgrade/wakes the readers that are next", Shared | Downgrade | Queue | Watch,
		"the readers need not wait any longer, and a writer behind them waits for all of them",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted)
			q.acquire("r1", driver.Queued, shared, waits(long))
			q.acquire("r2", driver.Queued, shared, waits(long))
			q.acquire("w", driver.Queued, waits(long))
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.acquire("a", driver.Granted, shared)
			q.enters("r1", "r2")
			q.renew("w", driver.Queued)
			q.renew("r3", driver.Queued)
		}},
	{"downgrade/no writer slips in", Shared | Downgrade | Queue,
		"a writer that was next in the queue stays next, and still waits",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.acquire("w", driver.Queued, waits(long))
			p.acquire("a", driver.Granted, shared)
			q.acquire("w", driver.Queued, waits(long))
			q.acquire("r", driver.Busy, shared)
			p.release("a", driver.Released)
			q.acquire("w", driver.Granted, waits(long))
		}},
	{"downgrade/not while held more than once", Shared | Downgrade | Reentry,
		"the owner's other lease still needs the room exclusively",
		func(l *lab, p, q *process) {
			me := reenter("user-1")
			p.acquire("outer", driver.Granted, me)
			p.acquire("inner", driver.Granted, me)
			p.refused("inner", driver.ErrMismatch, me, shared)
			q.acquire("r", driver.Busy, shared)
			p.renew("inner", driver.Granted)
			p.renew("outer", driver.Granted)
		}},
	{"downgrade/takes its places", Shared | Downgrade | Limits,
		"the lease counts with the weight of the request",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			p.acquire("a", driver.Granted, places(3, 2))
			q.acquire("b", driver.Granted, places(3, 1))
			q.acquire("c", driver.Busy, places(3, 1))
		}},
	{"downgrade/HR_A3 of a lease that has ended takes no lock", Shared | Downgrade,
		"a delayed request would otherwise lock for a holder that has gone",
		func(l *lab, p, q *process) {
			p.acquire("never", driver.Gone, lower)
			p.acquire("a", driver.Granted)
			p.release("a", driver.Released)
			p.acquire("a", driver.Gone, lower) // the room is free
			q.acquire("b", driver.Granted)
			p.acquire("a", driver.Gone, lower) // there is an exclusive holder
			q.acquire("b", driver.Granted, lower)
			p.acquire("a", driver.Gone, lower) // there are shared holders
			q.release("b", driver.Released)
			q.acquire("c", driver.Granted)
			q.release("c", driver.Released)
		}},
	{"downgrade/HR_A3 of a ticket has no effect", Shared | Downgrade | Queue,
		"a waiter has no lease that could become shared, and keeps its place",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.acquire("w", driver.Queued, waits(long))
			q.acquire("w", driver.Gone, lower)
			p.release("a", driver.Released)
			q.acquire("w", driver.Granted, waits(long))
		}},
	{"downgrade/there is no upgrade", Shared | Downgrade,
		"two readers that both wait to become the writer would wait for ever; a reader that asks as a writer stays a reader",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, shared)
			p.acquire("a", driver.Granted)
			q.acquire("r", driver.Granted, shared)
		}},
}
