package drivertest

import (
	"github.com/leasehold-go/leasehold/driver"
)

// visitRows test several callers with one id, as the replicas of a service ask for one
// client. Each may undo its own request, but never a grant that another caller has reported.
var visitRows = []row{
	{"visit/HR_A6 undoes its own grant", Visits,
		"a lock that was taken for a client that has gone stays closed until it expires",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, visit("p"))
			p.acquire("a", driver.Granted, visit("p")) // a repetition
			q.undo("a", "q", driver.Busy)
			q.undo("a", "p1", driver.Busy)
			p.renewFor("a", "p", driver.Granted)
			p.undo("a", "p", driver.Released)
			p.undo("a", "p", driver.Gone)
			q.acquire("b", driver.Granted)
		}},
	{"visit/G13 undoes by any name", Visits,
		"if a store treats a name as empty, it ends a lease that was reported to another visit",
		func(l *lab, p, q *process) {
			for _, name := range []string{"-", "0", ".", "_"} {
				q.acquire("a", driver.Granted, visit("q"))
				p.undo("a", name, driver.Busy)
				q.undo("a", "q", driver.Released)
				p.acquire("b", driver.Granted, visit(name))
				q.undo("b", "q", driver.Busy)
				p.undo("b", name, driver.Released)
			}
		}},
	{"visit/HR_A5 spares a lease that another asked for", Visits,
		"the client has also asked through another process, before or later, with or without a name, and got the answer that it has the lock",
		func(l *lab, p, q *process) {
			for _, other := range []string{"q", ""} {
				q.acquire("before", driver.Granted, visit(other))
				p.acquire("before", driver.Granted, visit("p"))
				p.undo("before", "p", driver.Busy)
				p.undo("before", "p", driver.Busy)
				q.renew("before", driver.Granted)
				q.release("before", driver.Released)
				p.acquire("later", driver.Granted, visit("p"))
				q.acquire("later", driver.Granted, visit(other))
				p.undo("later", "p", driver.Busy)
				q.renew("later", driver.Granted)
				q.release("later", driver.Released)
			}
		}},
	{"visit/HR_A6 is undone by the visit that it names", Visits,
		"a majority of stores and a service make several requests of their own for one visit of their caller",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, visit("p/1"))
			q.acquire("a", driver.Granted, visit("p/22"))
			p.undo("a", "p/1", driver.Busy)
			p.undo("a", "p/2", driver.Busy)
			q.renewFor("a", "p/22", driver.Granted)
			p.undo("a", "p", driver.Released)
			p.acquire("b", driver.Granted, visit("p/1"))
			q.acquire("b", driver.Granted, visit("q/1"))
			p.undo("b", "p", driver.Busy)
			q.renew("b", driver.Granted)
		}},
	{"visit/HR_A6 has no effect without a grant to undo", Visits | RejectIDFor | KeepClosed,
		"the lease that is spared can be renewed, released and asked for as before, and the room is open after it",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, visit("p"))
			q.acquire("a", driver.Granted, visit("q"))
			p.release("a", driver.Busy, from("p"), closes(long), rejects(long), lone)
			q.acquire("a", driver.Granted, visit("q"))
			q.release("a", driver.Released)
			q.acquire("b", driver.Granted)
		}},
	{"visit/HR_A6 spares a reader's lease", Visits | Shared,
		"a reader's lease is undone by the same rule",
		func(l *lab, p, q *process) {
			q.acquire("other", driver.Granted, shared)
			p.acquire("a", driver.Granted, shared, visit("p"))
			q.acquire("b", driver.Granted, shared, visit("q"))
			p.acquire("b", driver.Granted, shared, visit("p"))
			p.undo("b", "p", driver.Busy)
			p.undo("a", "p", driver.Released)
			q.renew("b", driver.Granted)
		}},
	{"visit/HR_A5 a place in the queue belongs to the visit that asked last", Visits | Queue,
		"a client that lost its connection and asked again through another process keeps its place, and gives it up through that process",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long), visit("p"))
			p.acquire("b", driver.Queued, waits(long), visit("p"))
			q.acquire("a", driver.Queued, waits(long), visit("q"))
			p.undo("a", "p", driver.Busy)
			p.undo("b", "p", driver.Left)
			p.release("holder", driver.Released)
			q.acquire("a", driver.Granted, waits(long), visit("q"))
			p.undo("a", "p", driver.Busy)
			q.undo("a", "q", driver.Released)
			p.acquire("c", driver.Granted)
		}},
	{"visit/HR_A5 a lease that was handed over belongs to the visit that asked", Visits | Queue | Watch,
		"it can be undone like a lease that was granted to a request",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("a", driver.Queued, waits(long), visit("q"))
			q.acquire("b", driver.Queued, waits(long), visit("q"))
			p.release("holder", driver.Released)
			q.hear(driver.HintGranted, "a")
			p.undo("a", "p", driver.Busy)
			q.renew("a", driver.Granted)
			p.acquire("a", driver.Granted, visit("p"))
			q.undo("a", "q", driver.Busy)
			q.release("a", driver.Released)
			q.hear(driver.HintGranted, "b")
			q.undo("b", "q", driver.Released)
		}},
	{"visit/HR_A5 spares a lease that another has renewed", Visits,
		"the client lost its connection, renewed through another process, and got the answer that it has the lock",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, visit("p"))
			q.renewFor("a", "q", driver.Granted)
			q.renewFor("a", "q", driver.Granted)
			p.undo("a", "p", driver.Busy)
			p.renewFor("a", "p", driver.Granted)
			p.undo("a", "p", driver.Busy)
			q.undo("a", "q", driver.Busy)
			q.release("a", driver.Released)
			p.acquire("b", driver.Granted, visit("p/1/x"))
			q.renewFor("b", "p/1", driver.Granted)
			p.undo("b", "p/1/x", driver.Busy)
			q.renewFor("b", "p/2", driver.Granted)
			p.undo("b", "p/1", driver.Busy)
			p.undo("b", "p", driver.Released)
		}},
	{"visit/HR_A5 spares a reader's lease that another has renewed", Visits | Shared,
		"a reader's lease is undone by the same rule, also if there are other readers",
		func(l *lab, p, q *process) {
			q.acquire("other", driver.Granted, shared, visit("q"))
			p.acquire("a", driver.Granted, shared, visit("p/1"))
			p.acquire("b", driver.Granted, shared, visit("p"))
			q.renewFor("a", "p/2", driver.Granted)
			p.undo("a", "p/1", driver.Busy)
			q.renewFor("b", "q", driver.Granted)
			p.undo("b", "p", driver.Busy)
			p.undo("a", "p", driver.Released)
			q.undo("other", "q", driver.Released)
			q.release("b", driver.Released)
		}},
	{"visit/HR_A5 spares a place that another has renewed", Visits | Queue | Watch,
		"another process has answered the client that it keeps its place, or that it has the lock",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("a", driver.Queued, waits(long), visit("p"))
			q.acquire("b", driver.Queued, waits(long), visit("p"))
			q.renewFor("a", "q", driver.Queued)
			p.undo("a", "p", driver.Busy)
			p.release("holder", driver.Released)
			q.hear(driver.HintGranted, "a")
			p.undo("a", "p", driver.Busy)
			q.renewFor("a", "q", driver.Granted)
			q.undo("a", "q", driver.Released)
			q.hear(driver.HintGranted, "b")
			q.renewFor("b", "q", driver.Granted)
			p.undo("b", "p", driver.Busy)
			q.release("b", driver.Released)
		}},
	{"visit/HR_A6 starts again with a new lease", Visits,
		"after its lease was released or has expired an id is free again, and visits to the old lease do not count for the new one",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, visit("p"), ttl(l.brief))
			q.acquire("a", driver.Granted, visit("q"), ttl(l.brief))
			l.pass(l.brief)
			q.acquire("a", driver.Granted, visit("q"))
			p.undo("a", "p", driver.Busy)
			q.undo("a", "q", driver.Released)
			p.acquire("a", driver.Granted, visit("p"))
			p.undo("a", "p", driver.Released)
		}},
}

// renewFor is renew for a caller of that visit, which receives the answer.
func (p *process) renewFor(name, visit string, want driver.State) {
	p.Helper()
	p.renew(name, want, from(visit))
}

// undo ends the row's lease or ticket called name if it belongs to a visit.
func (p *process) undo(name, visit string, want driver.State) {
	p.Helper()
	p.release(name, want, from(visit))
}
