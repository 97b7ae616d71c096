package drivertest

import (
	"strings"

	"github.com/leasehold-go/leasehold/driver"
)

// once sets SingleUseID, for a caller that cannot see which of its requests are repetitions.
func once(r *driver.Request) { r.SingleUseID = true }

// againRows test requests that a service or another caller sends for its clients. The clients
// may repeat a request, perhaps through another service.
var againRows = []row{
	{"again/is reported", Replayed,
		"a caller that repeats a request must see that the answer is about the lease that it already has",
		func(l *lab, p, q *process) {
			l.wantReplayed(p.acquire("a", driver.Granted), false)
			l.wantReplayed(q.acquire("a", driver.Granted), true)
			p.release("a", driver.Released)
			l.wantReplayed(q.acquire("b", driver.Granted), false)
		}},
	{"again/a hand-over is reported once", Replayed | Queue | Watch,
		"the first answer after a hand-over is the grant, to an Acquire as well as to a Renew; later answers repeat it",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("asks", driver.Queued, waits(long))
			q.acquire("renews", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			q.hear(driver.HintGranted, "asks")
			l.wantReplayed(q.acquire("asks", driver.Granted, waits(long)), false)
			l.wantReplayed(q.acquire("asks", driver.Granted, waits(long)), true)
			q.release("asks", driver.Released)
			q.enters("renews")
			l.wantReplayed(q.acquire("renews", driver.Granted, waits(long)), true)
		}},
	{"again/an id is used once", RejectIDFor,
		"a repetition that arrives after the release must not take the lock for a caller that has finished",
		func(l *lab, p, q *process) {
			for _, name := range []string{"a", "b"} {
				p.acquire(name, driver.Granted, once)
				p.release(name, driver.Released, singleUse)
				p.acquire(name, driver.Gone, once)
				q.acquire(name, driver.Gone, once, waits(long))
			}
			q.acquire("c", driver.Granted)
			p.acquire("a", driver.Gone, once)
			q.renew("c", driver.Granted)
		}},
	{"again/an id is used once in a room of the longest name", RejectIDFor,
		"some stores keep a rejected id under a key of its own, which is longer than the key of the lock",
		func(l *lab, p, q *process) {
			long := strings.Repeat("k", 511-len(l.tag)) + l.tag
			for _, l.key = range []string{long + "1", long + "2"} { // the id is another one in the other room
				p.acquire("a", driver.Granted, once)
				p.release("a", driver.Released, singleUse)
				p.acquire("a", driver.Gone, once)
			}
		}},
	{"again/a ticket's id is used once", RejectIDFor | Queue,
		"a waiter that has left the queue is not put at its end by an old request",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted, once)
			p.acquire("a", driver.Queued, once, waits(long))
			p.release("a", driver.Left, singleUse)
			p.acquire("a", driver.Gone, once, waits(long))
			p.release("holder", driver.Released, singleUse)
			p.acquire("b", driver.Granted, once)
		}},
	{"again/a release differs from a loss", RejectIDFor | Replayed,
		"a caller repeats a release after its answer was lost, and must not read that it had lost the lease",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, once)
			p.release("a", driver.Released, singleUse)
			l.wantReplayed(q.release("a", driver.Gone, singleUse), true)
			l.wantReplayed(q.acquire("a", driver.Gone, once), true)
			p.acquire("lost", driver.Granted, once, ttl(l.brief))
			l.pass(l.brief)
			for range 2 {
				l.wantReplayed(p.release("lost", driver.Gone, singleUse), false)
			}
		}},
	{"again/an id that is forbidden once concerns no other lease", RejectIDFor | Queue,
		"a rejected id must not delay the other waiters",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted, once)
			q.acquire("b", driver.Queued, waits(long))
			p.release("a", driver.Released, singleUse)
			if q.sub != nil {
				q.hear(driver.HintGranted, "b")
			}
			q.renew("b", driver.Granted)
			p.acquire("a", driver.Gone, once, waits(long))
			q.release("b", driver.Released)
		}},
}
