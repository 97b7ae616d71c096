package drivertest

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// releaseRows test the end of a lease, and requests after it.
var releaseRows = []row{
	{"release/twice", 0,
		"the next request is granted at once; a release without a reply is repeated, and must not end the next holder's lease",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			p.release("a", driver.Released)
			if p.release("a", driver.Gone).Broken {
				l.Fatal("Broken is set")
			}
			q.acquire("b", driver.Granted)
			p.release("a", driver.Gone)
			q.renew("b", driver.Granted)
		}},
	{"release/by a holder that takes itself for uncontended", 0,
		"the last answer is old: a waiter may have queued since, or the lease may have ended",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.acquire("b", driver.Busy)
			p.release("a", driver.Released, lone)
			p.release("a", driver.Gone, lone)
			q.acquire("b", driver.Granted)
			p.release("a", driver.Gone, lone)
			q.renew("b", driver.Granted)
		}},
	{"release/by a holder that was uncontended before a waiter queued", Queue,
		"the waiter that has queued since is next, and is not overtaken",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.acquire("b", driver.Queued, waits(long))
			p.release("a", driver.Released, lone)
			p.acquire("c", driver.Busy)
			q.acquire("b", driver.Granted, waits(long))
		}},
	{"release/by a stranger", 0,
		"only the lease's own id ends it",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.release("b", driver.Gone)
			q.acquire("b", driver.Busy)
			p.renew("a", driver.Granted)
		}},
	{"release/of an expired lease", 0,
		"the holder learns that its work was not protected to the end, and the present holder keeps its lease",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, ttl(l.brief))
			l.pass(l.brief)
			q.acquire("b", driver.Granted)
			p.release("a", driver.Gone)
			q.renew("b", driver.Granted)
		}},
	{"release/ids with a common beginning", 0,
		"ids are compared in full: a part of its id must not end or renew a lease",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			whole := l.id("a")
			for _, id := range []string{whole[:len(whole)-1], whole + "x", whole + ".x"} {
				other := func(ref *driver.Ref) { ref.ID = id }
				p.renew("a", driver.Gone, other)
				p.release("a", driver.Gone, other)
			}
			p.renew("a", driver.Granted)
		}},
	{"release/forbids a late acquire", RejectIDFor,
		"an acquire that went unanswered may still be on its way; after its release it must not take the lock for a caller that has gone",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			p.release("a", driver.Released, rejects(long))
			p.acquire("a", driver.Gone)
			p.acquire("a", driver.Gone, waits(long))
			p.renew("a", driver.Gone)
			q.acquire("b", driver.Granted)
			p.acquire("a", driver.Gone)
			q.renew("b", driver.Granted)
		}},
	{"release/forbids an acquire that has not come", RejectIDFor,
		"the release of an unanswered acquire may overtake it",
		func(l *lab, p, q *process) {
			p.release("a", driver.Gone, rejects(long))
			p.acquire("a", driver.Gone)
			q.acquire("b", driver.Granted)
			q.release("b", driver.Released)
			p.acquire("a", driver.Gone, waits(long))
			q.acquire("c", driver.Granted)
		}},
	{"release/forbids an id for the given time", RejectIDFor,
		"only the caller can bound how long its request may be on its way",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted)
			p.by(start, 4*l.brief).release("a", driver.Released, rejects(4*l.brief))
			p.acquire("once", driver.Granted, once)
			p.by(start, 4*l.brief).release("once", driver.Released, singleUse, rejects(4*l.brief))
			l.cfg.Advance(3 * l.brief)
			q.by(start, 4*l.brief).acquire("a", driver.Gone)
			q.by(start, 4*l.brief).acquire("once", driver.Gone, once)
		}},
	{"release/keeps the room closed", KeepClosed,
		"a cron job that is shorter than the difference of its hosts' clocks keeps the lock until all have tried",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(l.brief))
			closed := 4 * l.brief
			p.by(start, l.brief).release("a", driver.Released, closes(closed))
			if next := q.by(start, closed).acquire("b", driver.Busy).RetryAfter; next > closed+vague {
				l.Fatalf("next ask in %v, but the room is closed for %v", next, closed)
			}
			l.pass(l.brief)
			q.by(start, closed).acquire("b", driver.Busy)
			l.pass(3 * l.brief)
			q.acquire("b", driver.Granted)
		}},
	{"release/keeps the room closed once", KeepClosed | RejectIDFor, // the store must remember the id
		"a release is repeated if its answer was lost, or if the lease was lost; the repetition must not close the room",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, ttl(l.brief))
			p.free("a", closes(2*l.brief))
			l.cfg.Advance(l.brief)
			p.release("a", driver.Gone, closes(2*l.brief))
			l.pass(l.brief)
			q.acquire("b", driver.Granted)
			p.release("a", driver.Gone, closes(long))
			q.release("b", driver.Released)
			q.acquire("c", driver.Granted)
		}},
	{"release/is not followed by the delay", LockDelay,
		"after an orderly release the holder has no write on its way",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, delay(long))
			p.release("a", driver.Released)
			q.acquire("b", driver.Granted)
		}},
	{"release/expiry is followed by the delay", LockDelay,
		"a holder that lost its lease may have writes on their way; the room stays closed until they have landed",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(l.brief), delay(3*l.brief))
			l.pass(l.brief)
			p.renew("a", driver.Gone)
			q.by(start, 4*l.brief).acquire("b", driver.Busy)
			l.pass(l.brief)
			q.by(start, 4*l.brief).acquire("b", driver.Busy)
			l.pass(2 * l.brief)
			q.acquire("b", driver.Granted)
		}},
}
