package drivertest

import (
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// once marks a request of a caller that cannot know what it repeats.
func once(r *driver.Request) { r.SingleUseID = true }

// againRows: callers that are asked on behalf of others, who repeat what they
// ask, perhaps by way of another such caller.
var againRows = []row{
	{"again/is told", Replayed,
		"whoever repeats a request wants to know that it is the lease it has",
		func(l *lab, p, q *process) {
			if p.acquire("a", driver.Granted).Replayed {
				l.Fatal("the first grant is said to repeat one")
			}
			if !q.acquire("a", driver.Granted).Replayed {
				l.Fatal("a repetition is said to be the first grant")
			}
			p.release("a", driver.Released)
			if q.acquire("b", driver.Granted).Replayed {
				l.Fatal("the grant of another lease is said to repeat one")
			}
		}},
	{"again/a hand-over is told once", Replayed | Queue | Watch,
		"the first answer that says so is the grant, whether by asking or by renewing",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("asks", driver.Queued, waits(long))
			q.acquire("renews", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			q.hear(driver.HintGranted, "asks")
			if q.acquire("asks", driver.Granted, waits(long)).Replayed {
				l.Fatal("the confirmation is said to repeat a grant")
			}
			if !q.acquire("asks", driver.Granted, waits(long)).Replayed {
				l.Fatal("a repetition is said to be the first grant")
			}
			q.release("asks", driver.Released)
			q.hear(driver.HintGranted, "renews")
			q.renew("renews", driver.Granted)
			if !q.acquire("renews", driver.Granted, waits(long)).Replayed {
				l.Fatal("a repetition is said to be the first grant")
			}
		}},
	{"again/an id is used once", RejectIDFor,
		"a repetition that comes after the release must not take the lock for a caller that has finished",
		func(l *lab, p, q *process) {
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
		}},
	{"again/an id is used once in a room of the longest name", RejectIDFor,
		"what is remembered of an id has a place of its own in some stores, whose name is longer than that of the lock",
		func(l *lab, p, q *process) {
			long := strings.Repeat("k", 511-len(l.tag)) + l.tag
			for _, l.key = range []string{long + "1", long + "2"} { // the id is another one in the other room
				p.acquire("a", driver.Granted, once)
				p.releaseRef(l.onceRef("a"), driver.Released)
				p.acquire("a", driver.Gone, once)
			}
		}},
	{"again/a ticket's id is used once", RejectIDFor | Queue,
		"a waiter that has left the queue is not put at its end by an old request",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted, once)
			p.acquire("a", driver.Queued, once, waits(long))
			p.releaseRef(l.onceRef("a"), driver.Left)
			p.acquire("a", driver.Gone, once, waits(long))
			p.releaseRef(l.onceRef("holder"), driver.Released)
			p.acquire("b", driver.Granted, once)
		}},
	{"again/a release is told from a loss", RejectIDFor | Replayed,
		"a release whose answer was lost is repeated, and is not told that the lease had been lost",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, once)
			p.releaseRef(l.onceRef("a"), driver.Released)
			if !q.releaseRef(l.onceRef("a"), driver.Gone).Replayed {
				l.Fatal("the release is not remembered")
			}
			if !q.acquire("a", driver.Gone, once).Replayed {
				l.Fatal("the release is not remembered by an acquire")
			}
			p.acquire("lost", driver.Granted, once, ttl(l.brief))
			l.pass(l.brief)
			for range 2 {
				if p.releaseRef(l.onceRef("lost"), driver.Gone).Replayed {
					l.Fatal("the end of a lease that had expired is said to be a release")
				}
			}
		}},
	{"again/what is forbidden once is no other's business", RejectIDFor | Queue,
		"the memory of an id must not stand in the way of those who queue",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted, once)
			q.acquire("b", driver.Queued, waits(long))
			p.releaseRef(l.onceRef("a"), driver.Released)
			if q.sub != nil {
				q.hear(driver.HintGranted, "b")
			}
			q.renew("b", driver.Granted)
			p.acquire("a", driver.Gone, once, waits(long))
			q.release("b", driver.Released)
		}},
}

// onceRef releases the row's lease called name for good.
func (l *lab) onceRef(name string) driver.Ref {
	ref := l.ref(name)
	ref.RejectIDFor, ref.SingleUseID = long+time.Second, true
	return ref
}
