package drivertest

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// sharedRows: readers and writers.
var sharedRows = []row{
	{
		name:  "shared/a reader beside others is not told that it is uncontended",
		needs: Shared,
		why:   "what an uncontended holder may do without asking would go past the others inside",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, shared)
			if q.acquire("b", driver.Granted, shared).Uncontended {
				l.Fatal("granted: told that it is uncontended")
			}
			if p.renew("a", driver.Granted).Uncontended {
				l.Fatal("renewed: told that it is uncontended")
			}
		},
	},
	{
		name:  "shared/readers together, writers alone",
		needs: Shared,
		why:   "readers do not disturb one another; a writer is alone, also against the exclusive holder of a plain mutex on the same key",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("r1", driver.Granted, shared)
			if got := q.acquire("r2", driver.Granted, shared); got.Holds != 1 {
				l.Fatalf("a reader beside another holds %d, want 1", got.Holds)
			}
			p.acquire("w", driver.Busy)
			p.release("r1", driver.Released)
			p.acquire("w", driver.Busy)
			q.release("r2", driver.Released)
			p.acquire("w", driver.Granted)
			q.acquire("r3", driver.Busy, shared)
			p.release("w", driver.Released)
			q.acquire("r3", driver.Granted, shared)
		},
	},
	{
		name:  "shared/every reader expires by itself",
		needs: Shared,
		why:   "a dead reader must not live on the renewals of the others, nor take them along",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("dead", driver.Granted, shared, ttl(l.brief))
			q.acquire("alive", driver.Granted, shared)
			l.pass(l.brief)
			p.renew("dead", driver.Gone)
			q.renew("alive", driver.Granted)
			p.acquire("w", driver.Busy)
			q.release("alive", driver.Released)
			p.acquire("w", driver.Granted)
		},
	},
	{
		name:  "shared/the last reader's expiry frees",
		needs: Shared,
		why:   "the room is closed to writers as long as its longest-lived reader, whoever came first",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("r1", driver.Granted, shared, ttl(l.brief))
			start := time.Now()
			q.acquire("r2", driver.Granted, shared, ttl(3*l.brief))
			q.acquire("r3", driver.Granted, shared, ttl(l.brief))
			l.pass(l.brief)
			p.acquireBy(start, 3*l.brief, "w", driver.Busy)
			l.pass(2 * l.brief)
			p.acquire("w", driver.Granted)
		},
	},
	{
		name:  "shared/asking twice enters once",
		needs: Shared,
		why:   "a reader counted twice keeps the writers out after it has left",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			first := p.acquire("r", driver.Granted, shared)
			if again := q.acquire("r", driver.Granted, shared); again.Token != first.Token {
				l.Fatalf("tokens %d and %d for one lease", first.Token, again.Token)
			}
			p.release("r", driver.Released)
			q.acquire("w", driver.Granted)
		},
	},
	{
		name:  "shared/tokens rise for all",
		needs: Shared | Tokens,
		why:   "readers and writers of a key draw from one counter",
		run: func(l *lab) {
			p := l.process()
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
		},
	},
	{
		name:  "shared/a waiting writer stops readers",
		needs: Shared | Queue,
		why:   "readers that come and go would keep a writer out for ever",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("r1", driver.Granted, shared)
			p.acquire("w", driver.Queued, waits(long))
			q.acquire("r2", driver.Busy, shared)
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.release("r1", driver.Released)
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.acquire("w", driver.Granted, waits(long))
			p.release("w", driver.Released)
			q.acquire("r3", driver.Granted, shared, waits(long))
		},
	},
	{
		name:  "shared/neighbours enter together",
		needs: Shared | Queue | Watch,
		why:   "readers that stand together in the queue need not wait for one another",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
			p.acquire("w1", driver.Granted)
			q.acquire("r1", driver.Queued, shared, waits(long))
			q.acquire("r2", driver.Queued, shared, waits(long))
			q.acquire("w2", driver.Queued, waits(long))
			q.acquire("r3", driver.Queued, shared, waits(long))
			p.release("w1", driver.Released)
			for _, name := range []string{"r1", "r2"} {
				q.hear(driver.HintGranted, name)
				q.renew(name, driver.Granted)
			}
			q.renew("r3", driver.Queued)
			q.release("r1", driver.Released)
			q.renew("w2", driver.Queued)
			q.release("r2", driver.Released)
			q.hear(driver.HintGranted, "w2")
			q.renew("w2", driver.Granted)
		},
	},
	{
		name:  "shared/many neighbours enter together",
		needs: Shared | Queue | Watch,
		why:   "a store may bound the hand-overs of one step; the rest must be told to come now, not when somebody inside would expire",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
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
		},
	},
	{
		name:  "shared/a writer that leaves lets readers in",
		needs: Shared | Queue | Watch,
		why:   "the cancelled writer was all that kept the readers out",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
			p.acquire("r1", driver.Granted, shared)
			p.acquire("w", driver.Queued, waits(long))
			q.acquire("r2", driver.Queued, shared, waits(long))
			p.release("w", driver.Left)
			q.hear(driver.HintGranted, "r2")
			q.renew("r2", driver.Granted)
			p.renew("r1", driver.Granted)
		},
	},
}
