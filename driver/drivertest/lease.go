package drivertest

import (
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// leaseRows test one holder, its time, and its renewals.
var leaseRows = []row{
	{"lease/a free room is entered", 0,
		"a free lock is granted to the first request, whether or not it may wait",
		func(l *lab, p, q *process) {
			got := p.acquire("a", driver.Granted)
			l.greater(got.Token, 0)
			if got.Holds != 1 {
				l.Fatalf("holds %d, want 1", got.Holds)
			}
			p.acquire("b", driver.Granted, in(l.key+"/2"), waits(long))
		}},
	{"lease/strangers exclude each other", 0,
		"a lock must never have two holders at once; the refusal names the present holder, never the caller",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			for _, asks := range []*process{p, q} {
				got := asks.acquire("b", driver.Busy)
				if got.RetryAfter < 0 || got.RetryAfter > long+vague {
					l.Fatalf("next ask in %v, but the lease lives for %v", got.RetryAfter, long)
				}
				if len(got.Holders) > 8 {
					l.Fatalf("%d holders in a reply; a reply shows at most 8", len(got.Holders))
				}
				for _, h := range got.Holders {
					if h.ID != l.id("a") {
						l.Fatalf("the reply names the holder %q, but it is %q", h.ID, l.id("a"))
					}
					if h.Remaining <= 0 || h.Remaining > long+vague {
						l.Fatalf("the holder's Remaining is %v of %v", h.Remaining, long)
					}
				}
			}
		}},
	{"lease/asking twice enters once", 0,
		"a caller that got no reply asks again with the same id: it must learn that it holds the lock, with the same token, and one release must free it",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			for _, again := range []*process{p, q} {
				got := again.acquire("a", driver.Granted)
				if got.Token != first.Token || got.Holds != 1 {
					l.Fatalf("token %d, holds %d; the first answer was %d and 1", got.Token, got.Holds, first.Token)
				}
			}
			p.release("a", driver.Released)
			q.acquire("b", driver.Granted)
		}},
	{"lease/asking twice at once enters once", 0,
		"a retry may overtake the request that it repeats; both are one acquisition",
		func(l *lab, p, q *process) {
			replies := make([]driver.Reply, 8)
			var wg sync.WaitGroup
			for i := range replies {
				q := l.process()
				wg.Go(func() { replies[i], _ = q.try(q.request("a", nil)) })
			}
			wg.Wait()
			for _, got := range replies {
				l.expect("acquire a", got, driver.Granted)
				if got.Token != replies[0].Token {
					l.Fatalf("tokens %d and %d for one lease", got.Token, replies[0].Token)
				}
			}
			p.release("a", driver.Released)
			p.acquire("b", driver.Granted)
		}},
	{"lease/expires", 0,
		"a dead holder must not keep the lock for ever; after the answer Gone a late renewal must not restore the lease",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted, ttl(l.brief))
			l.pass(l.brief)
			p.renew("a", driver.Gone)
			l.greater(q.acquire("b", driver.Granted).Token, first.Token)
			p.renew("a", driver.Gone)
			q.renew("b", driver.Granted)
		}},
	{"lease/does not expire early", 0,
		"the holder counts its deadline from before the request; if the store's time is shorter, there is a second holder while the first still works",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(l.brief))
			l.cfg.Advance(l.brief / 2)
			q.by(start, l.brief).acquire("b", driver.Busy)
		}},
	{"lease/renewal never creates", 0,
		"a renewal may arrive after the release; it must not take the lock again, without an owner",
		func(l *lab, p, q *process) {
			p.renew("a", driver.Gone)
			p.acquire("a", driver.Granted)
			p.release("a", driver.Released)
			p.renew("a", driver.Gone)
			p.acquire("b", driver.Granted)
		}},
	{"lease/renewal prolongs", 0,
		"work takes longer than a TTL; each renewal starts a new full TTL",
		func(l *lab, p, q *process) {
			start := time.Now()
			first := p.acquire("a", driver.Granted, ttl(2*l.brief))
			l.cfg.Advance(l.brief)
			l.wantToken(p.by(start, 2*l.brief).renew("a", driver.Granted), first.Token)
			l.pass(2 * l.brief)
			q.acquire("b", driver.Busy)
			p.renew("a", driver.Granted)
		}},
	{"lease/renewal gives the full time", 0,
		"the holder counts its new deadline from before the renewal; if a store rounds it down, there is a second holder while the first still works",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(l.brief))
			renewed := time.Now()
			p.by(start, l.brief).renew("a", driver.Granted, lasts(3*l.brief))
			l.cfg.Advance(5 * l.brief / 2)
			q.by(renewed, 3*l.brief).acquire("b", driver.Busy)
			l.pass(l.brief / 2)
			q.acquire("b", driver.Granted)
		}},
	{"lease/asking again prolongs", 0,
		"Granted promises a full TTL from the request on, also as the answer to a repeated request",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(2*l.brief))
			l.cfg.Advance(l.brief)
			p.by(start, 2*l.brief).acquire("a", driver.Granted)
			l.pass(2 * l.brief)
			q.acquire("b", driver.Busy)
		}},
	{"lease/renewal never shortens", 0,
		"a delayed renewal must not shorten a longer renewal that overtook it: the holder relies on the longer one",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			p.renew("a", driver.Granted, lasts(l.brief))
			p.acquire("a", driver.Granted, ttl(l.brief))
			l.pass(l.brief)
			q.acquire("b", driver.Busy)
		}},
	{"lease/the next ask is in time", 0,
		"a refused caller that asks again after RetryAfter finds the lock free, unless it was renewed; a much later request would leave a free lock unused",
		func(l *lab, p, q *process) {
			start := time.Now()
			p.acquire("a", driver.Granted, ttl(l.brief))
			next := q.by(start, l.brief).acquire("b", driver.Busy).RetryAfter
			if next > l.brief+vague {
				l.Fatalf("next ask in %v, but the lease lives for %v", next, l.brief)
			}
			if next > 0 {
				l.pass(next)
				q.acquire("b", driver.Granted)
			}
		}},
	{"lease/the clock rises", 0,
		"the clock in replies dates hints; if it stops or goes back, a handed-over lease seems longer than it is",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			if first.Clock == 0 {
				l.Skip("the store gives no clock") //nolint:forbidigo // a store need not return its clock
			}
			l.cfg.Advance(l.brief)
			second := q.acquire("b", driver.Busy)
			if d := second.Clock - first.Clock; d < l.brief-rounding {
				l.Fatalf("the clock went on by %v while %v passed", d, l.brief)
			}
			if third := p.renew("a", driver.Granted); third.Clock < second.Clock {
				l.Fatalf("the clock fell from %v to %v", second.Clock, third.Clock)
			}
		}},
	{"lease/a holder with a waiter is not reported as uncontended", Queue,
		"a process with an uncontended lock passes it on inside itself, ahead of waiters in other processes",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.acquire("b", driver.Queued, waits(long))
			if p.acquire("a", driver.Granted).Uncontended {
				l.Fatal("asked again: Uncontended is set")
			}
			if p.renew("a", driver.Granted).Uncontended || p.renew("a", driver.Granted, lone).Uncontended { // it is a guess
				l.Fatal("renewed: Uncontended is set")
			}
		}},
	{"lease/renewed by a holder that was uncontended before", Queue,
		"a store may renew uncontended leases by a cheaper way, which must have the same effect; a waiter that has queued keeps its place",
		func(l *lab, p, q *process) {
			granted := p.acquire("a", driver.Granted)
			if got := p.renew("a", driver.Granted, lone); got.Token != 0 && got.Token != granted.Token {
				l.Fatalf("token %d, want %d", got.Token, granted.Token)
			}
			q.acquire("b", driver.Queued, waits(long))
			p.renew("a", driver.Granted, lone)
			p.renew("b", driver.Queued, lone)
			p.release("a", driver.Released, lone)
			p.renew("a", driver.Gone, lone)
			q.acquire("b", driver.Granted, waits(long))
		}},
}
