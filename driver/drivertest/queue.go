package drivertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// queueRows test tickets without an address: the waiters ask again by themselves.
var queueRows = []row{
	{"queue/keeps the order of arrival", Queue,
		"first come, first served: the oldest waiter gets the room, even if another one asks first after the release",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			for i, name := range []string{"a", "b", "c"} {
				by := []*process{p, q}[i%2]
				if got := by.acquire(name, driver.Queued, waits(long)); got.Position != i+1 {
					l.Fatalf("%s has place %d, want %d", name, got.Position, i+1)
				}
			}
			p.release("holder", driver.Released)
			last := int64(0)
			for _, names := range [][]string{{"c", "b", "a"}, {"c", "b"}, {"c"}} {
				turn := len(names) - 1
				for _, name := range names[:turn] {
					q.acquire(name, driver.Queued, waits(long))
				}
				got := p.acquire(names[turn], driver.Granted, waits(long))
				l.greater(got.Token, last)
				last = got.Token
				p.release(names[turn], driver.Released)
			}
		}},
	{"queue/many waiters with long labels", Queue,
		"a record grows with its queue, here beyond 64 KiB; if it is cut, the last waiters lose their places",
		func(l *lab, p, q *process) {
			much, name := labels(map[string]string{"text": strings.Repeat("l", 900)}), owner(strings.Repeat("o", 256))
			start := time.Now()
			p.acquire("holder", driver.Granted)
			const n = 60
			for i := range n {
				p.acquire(fmt.Sprintf("w%d", i), driver.Queued, waits(long), much, name)
			}
			last := p.by(start, long).acquire(fmt.Sprintf("w%d", n-1), driver.Queued, waits(long), much, name)
			if last.Position != n {
				l.Fatalf("the last has place %d, want %d", last.Position, n)
			}
			p.release("holder", driver.Released)
			p.by(start, long).acquire("w0", driver.Granted, waits(long), much, name)
		}},
	{"queue/asking once leaves no ticket", Queue,
		"a refused try does not wait; a ticket in its name would delay the waiters",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			if got := q.acquire("try", driver.Busy); got.Position != 0 {
				l.Fatalf("place %d for a request that does not wait", got.Position)
			}
			q.release("try", driver.Gone)
			p.release("holder", driver.Released)
			p.acquire("a", driver.Granted)
		}},
	{"queue/a try does not overtake", Queue,
		"a stream of tries would otherwise starve the waiters, between a release and their next request",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			q.acquire("try", driver.Busy)
			q.acquire("late", driver.Queued, waits(long))
			p.acquire("a", driver.Granted, waits(long))
		}},
	{"queue/a holder learns of waiters", Queue,
		"a holder with much time steps aside for a waiter, and goes on without one",
		func(l *lab, p, q *process) {
			wanted := func(want bool) {
				l.Helper()
				if got := p.renew("holder", driver.Granted).Wanted; got != want {
					l.Fatalf("Wanted is %v, want %v", got, want)
				}
			}
			p.acquire("holder", driver.Granted)
			wanted(false)
			q.acquire("a", driver.Queued, waits(long))
			wanted(true)
			q.release("a", driver.Left)
			wanted(false)
			q.acquire("dies", driver.Queued, waits(l.brief))
			q.acquire("b", driver.Queued, waits(long))
			l.pass(l.brief)
			wanted(true)
			q.release("b", driver.Left)
			q.acquire("dies", driver.Queued, waits(l.brief))
			l.pass(l.brief)
			wanted(false)
			wanted(false)
		}},
	{"queue/barging overtakes", Queue | Policies,
		"a barging caller takes a free lock at once, and in return may wait longer at other times",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			q.acquire("b", driver.Busy, policy(driver.Barging))
			p.release("holder", driver.Released)
			q.acquire("b", driver.Granted, policy(driver.Barging))
			p.acquire("a", driver.Queued, waits(long))
			q.release("b", driver.Released)
			p.acquire("a", driver.Granted, waits(long))
		}},
	{"queue/asking again keeps the place", Queue,
		"a waiter asks many times; each request finds its place unchanged",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			names := []string{"a", "b", "c"}
			for _, name := range names {
				p.acquire(name, driver.Queued, waits(long))
			}
			for _, again := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}} {
				for _, name := range again {
					p.acquire(name, driver.Queued, waits(long))
					p.renew(name, driver.Queued)
				}
			}
			for i, name := range names {
				asked, renewed := p.acquire(name, driver.Queued, waits(long)), p.renew(name, driver.Queued)
				if asked.Position != i+1 || renewed.Position != i+1 {
					l.Fatalf("%s has place %d by asking and %d by renewal, want %d", name, asked.Position, renewed.Position, i+1)
				}
			}
		}},
	{"queue/renewal enters when the turn has come", Queue,
		"a waiter without hints gets the grant as the answer to a renewal of its ticket",
		func(l *lab, p, q *process) {
			first := p.acquire("holder", driver.Granted)
			q.acquire("a", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			got := q.renew("a", driver.Granted)
			l.greater(got.Token, first.Token)
			l.wantToken(q.acquire("a", driver.Granted, waits(long)), got.Token)
			p.acquire("b", driver.Busy)
		}},
	{"queue/a dead ticket ends", Queue,
		"a waiter that died without a Release must not delay later waiters beyond the life of its ticket",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			p.acquire("dead", driver.Queued, waits(l.brief))
			q.acquire("a", driver.Queued, waits(long))
			l.pass(l.brief)
			p.release("holder", driver.Released)
			p.renew("dead", driver.Gone)
			q.acquire("a", driver.Granted, waits(long))
		}},
	{"queue/a renewed ticket lives", Queue,
		"waiting may take longer than the life of a ticket",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			start := time.Now()
			q.acquire("a", driver.Queued, waits(2*l.brief))
			q.acquire("b", driver.Queued, waits(2*l.brief))
			q.acquire("c", driver.Queued, waits(long))
			l.cfg.Advance(l.brief)
			q.by(start, 2*l.brief).renew("a", driver.Queued)
			q.by(start, 2*l.brief).acquire("b", driver.Queued, waits(long))
			l.pass(2 * l.brief)
			p.release("holder", driver.Released)
			q.acquire("c", driver.Queued, waits(long))
			q.acquire("b", driver.Queued, waits(long))
			q.renew("a", driver.Granted)
		}},
	{"queue/enters when the holder expires", Queue,
		"the holder died and does not release; the head finds the room free after RetryAfter",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("holder", driver.Granted, ttl(l.brief))
			got := q.by(start, l.brief).acquire("a", driver.Queued, waits(long))
			if got.RetryAfter <= 0 || got.RetryAfter > l.brief+vague {
				l.Fatalf("the RetryAfter of the head is %v; the holder lives for %v", got.RetryAfter, l.brief)
			}
			l.pass(got.RetryAfter)
			q.acquire("a", driver.Granted, waits(long))
		}},
}

// orderRows test events that must not change the order.
var orderRows = []row{
	{"order/leaving keeps it", Queue,
		"waiters are cancelled anywhere in the queue; the remaining waiters keep their order",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			for _, name := range []string{"head", "a", "middle", "b", "tail"} {
				p.acquire(name, driver.Queued, waits(long))
			}
			for _, name := range []string{"middle", "head", "tail"} {
				p.release(name, driver.Left)
				p.release(name, driver.Gone)
				p.renew(name, driver.Gone)
			}
			q.acquire("c", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			for _, name := range []string{"a", "b", "c"} {
				q.acquire("try", driver.Busy)
				p.acquire(name, driver.Granted, waits(long))
				p.release(name, driver.Released)
			}
			q.acquire("try", driver.Granted)
		}},
	{"order/leaving frees at once", Queue,
		"the waiter behind a waiter that left is served at once",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			q.acquire("try", driver.Busy)
			p.release("a", driver.Left)
			q.acquire("try", driver.Granted)
		}},
	{"order/a ticket forbidden on leaving does not come back", Queue | RejectIDFor,
		"a request of a waiter that gave up may still be on its way; a ticket or a grant in its name would delay all waiters",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			p.release("a", driver.Left, rejects(long))
			p.acquire("a", driver.Gone, waits(long))
			p.release("holder", driver.Released)
			p.acquire("a", driver.Gone, waits(long))
			q.acquire("b", driver.Granted)
		}},
	{"order/a long hold does not change it", Queue,
		"the holder renews for many times the life of a ticket; the waiters keep their tickets alive, and no place depends on time",
		func(l *lab, p, q *process) {
			step := l.brief / 4
			p.acquire("holder", driver.Granted)
			names := []string{"a", "b", "c", "d", "e"}
			refs := []driver.Ref{l.ref("holder")}
			asked := time.Now() // the tickets live from then on
			for _, name := range names {
				q.acquire(name, driver.Queued, waits(4*step))
				ref := l.ref(name)
				ref.TicketTTL = 4 * step
				refs = append(refs, ref)
			}
			for range 60 { // 15 times the life of a ticket
				l.cfg.Advance(step)
				again := time.Now()
				got, _ := q.renewAll(refs)
				l.intime(asked, 4*step)
				asked = again
				for i, reply := range got[1:] {
					l.expect("renew "+names[i], reply, driver.Queued)
				}
			}
			for i, name := range names {
				if got := q.acquire(name, driver.Queued, waits(long)); got.Position != i+1 {
					l.Fatalf("%s has place %d, want %d", name, got.Position, i+1)
				}
			}
		}},
	{"order/writers first", Queue | Policies | Shared,
		"with this policy a waiting writer stops new readers and overtakes waiting readers; writers keep their order",
		func(l *lab, p, q *process) {
			by := policy(driver.WritersFirst)
			p.acquire("r0", driver.Granted, shared, by)
			p.acquire("w1", driver.Queued, by, waits(long))
			q.acquire("r1", driver.Queued, shared, by, waits(long))
			q.acquire("w2", driver.Queued, by, waits(long))
			q.acquire("r2", driver.Busy, shared, by)
			p.release("r0", driver.Released)
			for _, name := range []string{"w1", "w2"} {
				q.acquire("r1", driver.Queued, shared, by, waits(long))
				p.acquire(name, driver.Granted, by, waits(long))
				p.release(name, driver.Released)
			}
			q.acquire("r1", driver.Granted, shared, by, waits(long))
		}},
	{"order/readers first", Queue | Policies | Shared,
		"with this policy readers are granted next to readers although a writer waits",
		func(l *lab, p, q *process) {
			by := policy(driver.ReadersFirst)
			p.acquire("r1", driver.Granted, shared, by)
			p.acquire("w", driver.Queued, by, waits(long))
			q.acquire("r2", driver.Granted, shared, by)
			p.release("r1", driver.Released)
			p.acquire("w", driver.Queued, by, waits(long))
			q.acquire("r3", driver.Granted, shared, by, waits(long))
			q.release("r2", driver.Released)
			q.release("r3", driver.Released)
			p.acquire("w", driver.Granted, by, waits(long))
		}},
}
