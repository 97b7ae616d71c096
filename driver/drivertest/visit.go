package drivertest

import (
	"github.com/leasehold-go/leasehold/driver"
)

// visitRows: several who ask with one id, as the replicas of a service do for one
// client. Each may undo what it asked for, and nothing that another was told.
var visitRows = []row{
	{
		name:  "visit/HR_A6 undoes what it was granted",
		needs: Visits,
		why:   "a lock that was taken for a client that has gone is nobody's until its time is over",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, visit("p"))
			p.acquire("a", driver.Granted, visit("p")) // a repetition
			q.undo("a", "q", driver.Busy)
			q.undo("a", "p1", driver.Busy)
			p.renewFor("a", "p", driver.Granted)
			p.undo("a", "p", driver.Released)
			p.undo("a", "p", driver.Gone)
			q.acquire("b", driver.Granted)
		},
	},
	{
		name:  "visit/G13 undoes by any name",
		needs: Visits,
		why:   "a store that takes a name for none ends a lease that another was told of",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			for _, name := range []string{"-", "0", ".", "_"} {
				q.acquire("a", driver.Granted, visit("q"))
				p.undo("a", name, driver.Busy)
				q.undo("a", "q", driver.Released)
				p.acquire("b", driver.Granted, visit(name))
				q.undo("b", "q", driver.Busy)
				p.undo("b", name, driver.Released)
			}
		},
	},
	{
		name:  "visit/HR_A6 spares a lease that another asked for later",
		needs: Visits,
		why:   "the client has asked another replica meanwhile, and was told that it has the lock",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, visit("p"))
			q.acquire("a", driver.Granted, visit("q"))
			p.undo("a", "p", driver.Busy)
			q.renew("a", driver.Granted)
			q.release("a", driver.Released)
		},
	},
	{
		name:  "visit/HR_A5 spares a lease that another asked for before",
		needs: Visits,
		why:   "a request that was held up arrives when the client has long asked again elsewhere, and been told that it has the lock",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			q.acquire("a", driver.Granted, visit("q"))
			p.acquire("a", driver.Granted, visit("p"))
			p.undo("a", "p", driver.Busy)
			p.undo("a", "p", driver.Busy)
			q.renew("a", driver.Granted)
			q.release("a", driver.Released)
		},
	},
	{
		name:  "visit/HR_A5 spares a lease of somebody without a name",
		needs: Visits,
		why:   "a caller without a name undoes nothing, and may have been told that it has the lease",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			q.acquire("first", driver.Granted)
			p.acquire("first", driver.Granted, visit("p"))
			p.undo("first", "p", driver.Busy)
			q.release("first", driver.Released)
			p.acquire("later", driver.Granted, visit("p"))
			q.acquire("later", driver.Granted)
			p.undo("later", "p", driver.Busy)
			q.renew("later", driver.Granted)
			q.release("later", driver.Released)
		},
	},
	{
		name:  "visit/HR_A6 is undone by the visit on whose behalf it asks",
		needs: Visits,
		why:   "a majority of stores and a service ask in rounds and requests of their own for one visit of their caller",
		run: func(l *lab) {
			p, q := l.process(), l.process()
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
		},
	},
	{
		name:  "visit/HR_A6 changes nothing where it undoes nothing",
		needs: Visits | RejectIDFor | KeepClosed,
		why:   "the lease that is spared is to be renewed, released and asked for as before, and the room to be open after it",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, visit("p"))
			q.acquire("a", driver.Granted, visit("q"))
			ref := p.visited("a", "p")
			ref.KeepClosed, ref.RejectIDFor, ref.Uncontended = long, long, true
			p.releaseRef(ref, driver.Busy)
			q.acquire("a", driver.Granted, visit("q"))
			q.release("a", driver.Released)
			q.acquire("b", driver.Granted)
		},
	},
	{
		name:  "visit/HR_A6 spares a reader's lease",
		needs: Visits | Shared,
		why:   "a reader's lease is undone by the same rule",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			q.acquire("other", driver.Granted, shared)
			p.acquire("a", driver.Granted, shared, visit("p"))
			q.acquire("b", driver.Granted, shared, visit("q"))
			p.acquire("b", driver.Granted, shared, visit("p"))
			p.undo("b", "p", driver.Busy)
			p.undo("a", "p", driver.Released)
			q.renew("b", driver.Granted)
		},
	},
	{
		name:  "visit/HR_A5 a place in the queue belongs to the visit that asked last",
		needs: Visits | Queue,
		why:   "a client that lost its connection and came back by another way has its place there, and gives it up there",
		run: func(l *lab) {
			p, q := l.process(), l.process()
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
		},
	},
	{
		name:  "visit/HR_A5 a lease that was handed over belongs to the visit that asked",
		needs: Visits | Queue | Watch,
		why:   "it may be undone as one that was taken by asking",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
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
		},
	},
	{
		name:  "visit/HR_A5 spares a lease that another has renewed",
		needs: Visits,
		why:   "the client whose connection broke has renewed elsewhere, and been told that it has the lock",
		run: func(l *lab) {
			p, q := l.process(), l.process()
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
		},
	},
	{
		name:  "visit/HR_A5 spares a reader's lease that another has renewed",
		needs: Visits | Shared,
		why:   "a reader's lease is undone by the same rule, also where others are inside",
		run: func(l *lab) {
			p, q := l.process(), l.process()
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
		},
	},
	{
		name:  "visit/HR_A5 spares a place that another has renewed",
		needs: Visits | Queue | Watch,
		why:   "the client has been told elsewhere that it keeps its place, or that its turn has come",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
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
		},
	},
	{
		name:  "visit/HR_A6 begins anew with a new lease",
		needs: Visits,
		why:   "an id whose lease was released or has expired is free again, and the visits that asked for that one have no part in the next",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, visit("p"), ttl(l.brief))
			q.acquire("a", driver.Granted, visit("q"), ttl(l.brief))
			l.pass(l.brief)
			q.acquire("a", driver.Granted, visit("q"))
			p.undo("a", "p", driver.Busy)
			q.undo("a", "q", driver.Released)
			p.acquire("a", driver.Granted, visit("p"))
			p.undo("a", "p", driver.Released)
		},
	},
}

// visited is the row's lease or ticket called name, as far as it belongs to a visit.
func (l *lab) visited(name, visit string) driver.Ref {
	ref := l.ref(name)
	ref.Visit = visit
	return ref
}

// renewFor is renew for a caller of that visit, which is told.
func (p *process) renewFor(name, visit string, want driver.State) {
	p.Helper()
	ref := p.visited(name, visit)
	ref.HintAddress = p.address()
	p.renewRef(ref, want)
}

// undo ends the row's lease or ticket called name if it belongs to a visit.
func (p *process) undo(name, visit string, want driver.State) {
	p.Helper()
	p.releaseRef(p.visited(name, visit), want)
}
