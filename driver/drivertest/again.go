package drivertest

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// once marks a request of a caller that cannot know what it repeats.
func once(r *driver.Request) { r.Once = true }

// againRows: callers that are asked on behalf of others, who repeat what they
// ask, perhaps by way of another such caller.
var againRows = []row{
	{
		name:  "again/is told",
		needs: Again,
		why:   "whoever repeats a request wants to know that it is the lease it has",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			if p.acquire("a", driver.Granted).Again {
				l.Fatal("the first grant is said to repeat one")
			}
			if !q.acquire("a", driver.Granted).Again {
				l.Fatal("a repetition is said to be the first grant")
			}
			p.release("a", driver.Released)
			if q.acquire("b", driver.Granted).Again {
				l.Fatal("the grant of another lease is said to repeat one")
			}
		},
	},
	{
		name:  "again/a hand-over is told once",
		needs: Again | Queue | Watch,
		why:   "the first answer that says so is the grant, whether by asking or by renewing",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
			p.acquire("holder", driver.Granted)
			q.acquire("asks", driver.Queued, waits(long))
			q.acquire("renews", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			q.hear(driver.HintGranted, "asks")
			if q.acquire("asks", driver.Granted, waits(long)).Again {
				l.Fatal("the confirmation is said to repeat a grant")
			}
			if !q.acquire("asks", driver.Granted, waits(long)).Again {
				l.Fatal("a repetition is said to be the first grant")
			}
			q.release("asks", driver.Released)
			q.hear(driver.HintGranted, "renews")
			q.renew("renews", driver.Granted)
			if !q.acquire("renews", driver.Granted, waits(long)).Again {
				l.Fatal("a repetition is said to be the first grant")
			}
		},
	},
	{
		name:  "again/an id is used once",
		needs: Forbid,
		why:   "a repetition that comes after the release must not take the lock for a caller that has finished",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			for _, name := range []string{"a", "b"} {
				p.acquire(name, driver.Granted, once)
				ref := l.onceRef(name)
				p.releaseRef(ref, driver.Released)
				p.acquire(name, driver.Gone, once)
				q.acquire(name, driver.Gone, once, waits(long))
			}
			q.acquire("c", driver.Granted)
			p.acquire("a", driver.Gone, once)
			q.renew("c", driver.Granted)
		},
	},
	{
		name:  "again/a ticket's id is used once",
		needs: Forbid | Queue,
		why:   "who has left the queue is not put at its end by an old request",
		run: func(l *lab) {
			p := l.process()
			p.acquire("holder", driver.Granted, once)
			p.acquire("a", driver.Queued, once, waits(long))
			p.releaseRef(l.onceRef("a"), driver.Left)
			p.acquire("a", driver.Gone, once, waits(long))
			p.releaseRef(l.onceRef("holder"), driver.Released)
			p.acquire("b", driver.Granted, once)
		},
	},
	{
		name:  "again/a release is told from a loss",
		needs: Forbid | Again,
		why:   "a release whose answer was lost is repeated, and is not told that the lease had been lost",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, once)
			p.releaseRef(l.onceRef("a"), driver.Released)
			if !q.releaseRef(l.onceRef("a"), driver.Gone).Again {
				l.Fatal("the release is not remembered")
			}
			if !q.acquire("a", driver.Gone, once).Again {
				l.Fatal("the release is not remembered by an acquire")
			}
			p.acquire("lost", driver.Granted, once, ttl(brief))
			l.pass(brief)
			for range 2 {
				if p.releaseRef(l.onceRef("lost"), driver.Gone).Again {
					l.Fatal("the end of a lease that had expired is said to be a release")
				}
			}
		},
	},
	{
		name:  "again/what is forbidden once is no other's business",
		needs: Forbid | Queue,
		why:   "the memory of an id must not stand in the way of those who queue",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
			p.acquire("a", driver.Granted, once)
			q.acquire("b", driver.Queued, waits(long))
			p.releaseRef(l.onceRef("a"), driver.Released)
			if q.sub != nil {
				q.hear(driver.HintGranted, "b")
			}
			q.renew("b", driver.Granted)
			p.acquire("a", driver.Gone, once, waits(long))
			q.release("b", driver.Released)
		},
	},
	{
		name:  "again/a release by address spares who asked since",
		needs: Watch,
		why:   "a caller whose client has gone gives back what it took, unless the client has asked another one and been told that it has the lock",
		run: func(l *lab) {
			p, q := l.process().listen(), l.process().listen()
			p.acquire("a", driver.Granted)
			q.acquire("a", driver.Granted)
			p.releaseRef(p.own("a"), driver.Busy)
			q.renew("a", driver.Granted)
			p.acquire("a", driver.Granted)
			q.releaseRef(q.own("a"), driver.Busy)
			p.releaseRef(p.own("a"), driver.Released)
			p.releaseRef(p.own("a"), driver.Gone)
			q.acquire("b", driver.Granted)
		},
	},
	{
		name:  "again/a ticket is left by address",
		needs: Watch | Queue,
		why:   "a client that lost its connection and came back by another way has its place there",
		run: func(l *lab) {
			p, q := l.process().listen(), l.process().listen()
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			p.acquire("b", driver.Queued, waits(long))
			q.acquire("a", driver.Queued, waits(long))
			p.releaseRef(p.own("a"), driver.Busy)
			p.releaseRef(p.own("b"), driver.Left)
			p.release("holder", driver.Released)
			q.hear(driver.HintGranted, "a")
			p.releaseRef(p.own("a"), driver.Busy)
			q.renew("a", driver.Granted)
			p.releaseRef(p.own("a"), driver.Busy)
			q.releaseRef(q.own("a"), driver.Released)
		},
	},
}

// onceRef releases the row's lease called name for good.
func (l *lab) onceRef(name string) driver.Ref {
	ref := l.ref(name)
	ref.Forbid, ref.Once = long+time.Second, true
	return ref
}

// own is the row's lease or ticket called name, if it still has p's address.
func (p *process) own(name string) driver.Ref {
	ref := p.ref(name)
	ref.Notify = p.address()
	return ref
}
