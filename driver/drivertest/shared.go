package drivertest

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// sharedRows test readers and writers.
var sharedRows = []row{
	{"shared/a reader next to another is not reported as uncontended", Shared,
		"an uncontended holder may act without asking the store, and would ignore the other readers",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, shared)
			if q.acquire("b", driver.Granted, shared).Uncontended {
				l.Fatal("granted: Uncontended is set")
			}
			if p.renew("a", driver.Granted).Uncontended {
				l.Fatal("renewed: Uncontended is set")
			}
		}},
	{"shared/readers together, writers alone", Shared,
		"readers do not disturb one another; a writer is alone, also against the exclusive holder of a plain mutex on the same key",
		func(l *lab, p, q *process) {
			p.acquire("r1", driver.Granted, shared)
			if got := q.acquire("r2", driver.Granted, shared); got.Holds != 1 {
				l.Fatalf("a reader next to another has Holds %d, want 1", got.Holds)
			}
			p.acquire("w", driver.Busy)
			p.release("r1", driver.Released)
			p.acquire("w", driver.Busy)
			q.release("r2", driver.Released)
			p.acquire("w", driver.Granted)
			q.acquire("r3", driver.Busy, shared)
			p.release("w", driver.Released)
			q.acquire("r3", driver.Granted, shared)
		}},
	{"shared/every reader expires on its own", Shared,
		"the renewals of other readers must not prolong a dead reader's lease, and its expiry must not end theirs",
		func(l *lab, p, q *process) {
			p.acquire("dead", driver.Granted, shared, ttl(l.brief))
			q.acquire("alive", driver.Granted, shared)
			l.pass(l.brief)
			p.renew("dead", driver.Gone)
			q.renew("alive", driver.Granted)
			p.acquire("w", driver.Busy)
			q.release("alive", driver.Released)
			p.acquire("w", driver.Granted)
		}},
	{"shared/the last reader's expiry frees", Shared,
		"the room is closed to writers until the last reader's lease ends, in any order of arrival",
		func(l *lab, p, q *process) {
			p.acquire("r1", driver.Granted, shared, ttl(l.brief))
			start := time.Now()
			q.acquire("r2", driver.Granted, shared, ttl(3*l.brief))
			q.acquire("r3", driver.Granted, shared, ttl(l.brief))
			l.pass(l.brief)
			p.by(start, 3*l.brief).acquire("w", driver.Busy)
			l.pass(2 * l.brief)
			p.acquire("w", driver.Granted)
		}},
	{"shared/asking twice enters once", Shared,
		"a reader that is counted twice would keep writers out after its release",
		func(l *lab, p, q *process) {
			first := p.acquire("r", driver.Granted, shared)
			l.wantToken(q.acquire("r", driver.Granted, shared), first.Token)
			p.release("r", driver.Released)
			q.acquire("w", driver.Granted)
		}},
	{"shared/tokens rise for all", Shared | Tokens,
		"readers and writers of a key draw from one counter",
		func(l *lab, p, q *process) {
			last := int64(0)
			for i := range 6 {
				opts := []option{shared}
				if i%3 == 2 {
					opts = nil
				}
				got := p.acquire(fmt.Sprintf("p%d", i), driver.Granted, opts...)
				l.greater(got.Token, last)
				last = got.Token
				if i%3 > 0 {
					p.release(fmt.Sprintf("p%d", i), driver.Released)
				}
				if i%3 == 1 {
					p.release(fmt.Sprintf("p%d", i-1), driver.Released)
				}
			}
		}},
	{"shared/a waiting writer stops readers", Shared | Queue,
		"readers that come and go would keep a writer out for ever",
		func(l *lab, p, q *process) {
			p.acquire("r1", driver.Granted, shared)
			p.acquire("w", driver.Queued, waits(long))
			q.acquire("r2", driver.Busy, shared)
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.release("r1", driver.Released)
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.acquire("w", driver.Granted, waits(long))
			p.release("w", driver.Released)
			q.acquire("r3", driver.Granted, shared, waits(long))
		}},
	{"shared/neighbours enter together", Shared | Queue | Watch,
		"adjacent readers in the queue need not wait for one another",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("w1", driver.Granted)
			q.acquire("r1", driver.Queued, shared, waits(long))
			q.acquire("r2", driver.Queued, shared, waits(long))
			q.acquire("w2", driver.Queued, waits(long))
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.release("w1", driver.Released)
			q.enters("r1", "r2")
			q.renew("r3", driver.Queued)
			q.release("r1", driver.Released)
			q.renew("w2", driver.Queued)
			q.release("r2", driver.Released)
			q.enters("w2")
		}},
	{"shared/many neighbours enter together", Shared | Queue | Watch,
		"a store may bound the hand-overs of one step; the other waiters must ask now, not when a holder expires",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("w", driver.Granted)
			const n = 150
			for i := range n {
				q.acquire(fmt.Sprintf("r%d", i), driver.Queued, shared, waits(long))
			}
			p.release("w", driver.Released)
			inside := map[string]bool{}
			for len(inside) < n {
				hint := q.hearAny(func(h driver.Hint) bool { return h.ID != "" && !inside[h.ID] && h.RetryAfter < time.Second }, "the other readers")
				ref := driver.Ref{Key: l.key, ID: hint.ID, TTL: long, TicketTTL: long, HintAddress: q.address()}
				if got, _ := q.renewAll([]driver.Ref{ref}); got[0].State == driver.Granted {
					inside[hint.ID] = true
				}
			}
		}},
	{"shared/a writer that leaves lets readers in", Shared | Queue | Watch,
		"only the cancelled writer kept the readers out",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("r1", driver.Granted, shared)
			p.acquire("w", driver.Queued, waits(long))
			q.acquire("r2", driver.Queued, shared, waits(long))
			p.release("w", driver.Left)
			q.enters("r2")
			p.renew("r1", driver.Granted)
		}},
}
