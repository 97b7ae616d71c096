package drivertest

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// raiseRows test a token that is raised while its lease is held.
var raiseRows = []row{
	{"raise/the token and later tokens", Tokens | Raise,
		"a majority of stores gives one token: before the holder works, it raises the token of all stores to the greatest, or the next token could be smaller",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			raised := first.Token + 1000
			p.raise("a", raised, raised)
			l.wantToken(p.renew("a", driver.Granted), raised)
			l.wantToken(q.acquire("a", driver.Granted), raised)
			q.acquire("b", driver.Busy)
			p.release("a", driver.Released)
			second := q.acquire("b", driver.Granted)
			l.greater(second.Token, raised)
			q.release("b", driver.Released)
			l.greater(p.acquire("c", driver.Granted).Token, second.Token)
		}},
	{"raise/never lowers", Tokens | Raise,
		"a resource may have seen the token, so it must not fall",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			p.raise("a", first.Token-1, first.Token)
			p.raise("a", first.Token, first.Token)
			p.raise("a", first.Token+1, first.Token+1)
			p.raise("a", first.Token, first.Token+1)
		}},
	{"raise/HR_B4 levels an unreported token", Tokens | Raise,
		"a store with a token ahead of the majority is asked again under the lease, and must answer with the token that the holder has",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			p.raise("a", first.Token+1000, first.Token+1000)
			for _, token := range []int64{first.Token + 500, first.Token + 500, first.Token + 700, first.Token + 600} {
				levelled := func(ref *driver.Ref) { ref.Token, ref.Level = token, true }
				l.wantToken(p.renew("a", driver.Granted, levelled), token)
				l.wantToken(p.renew("a", driver.Granted), token)
				l.wantToken(q.acquire("a", driver.Granted), token)
			}
			p.release("a", driver.Released)
			l.greater(q.acquire("b", driver.Granted).Token, first.Token+1000)
		}},
	{"raise/over expiry", Tokens | Raise,
		"the raised token counts also if its holder was lost right after",
		func(l *lab, p, q *process) {
			start := time.Now()
			first := p.acquire("a", driver.Granted, ttl(l.brief))
			p.by(start, l.brief).renew("a", driver.Granted, raised(first.Token+1000), lasts(l.brief))
			l.pass(l.brief)
			l.greater(q.acquire("b", driver.Granted).Token, first.Token+1000)
		}},
	{"raise/not far ahead", Tokens | Raise,
		"one bad caller could use up a key's tokens for ever; the reply shows that the token is unchanged",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			p.raise("a", 1<<52, first.Token) // µs: the year 2112
			p.release("a", driver.Released)
			if got := p.acquire("b", driver.Granted); got.Token >= 1<<52 {
				l.Fatalf("token %d", got.Token)
			}
		}},
	{"raise/only by a holder", Tokens | Raise,
		"a late raise belongs to a lease that has ended",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			q.renew("b", driver.Gone, raised(first.Token+1000))
			l.wantToken(p.renew("a", driver.Granted), first.Token)
		}},
	{"raise/of a reader", Tokens | Raise | Shared,
		"readers and writers of a key draw from one counter",
		func(l *lab, p, q *process) {
			first := p.acquire("r1", driver.Granted, shared)
			second := q.acquire("r2", driver.Granted, shared)
			p.raise("r1", second.Token+1000, second.Token+1000)
			if got := q.renew("r2", driver.Granted); got.Token != second.Token || got.Token <= first.Token {
				l.Fatalf("the other reader's token is %d, was %d", got.Token, second.Token)
			}
			l.greater(q.acquire("r3", driver.Granted, shared).Token, second.Token+1000)
		}},
	{"raise/of an owner inside twice", Tokens | Raise | Reentry,
		"an owner has one token at every depth",
		func(l *lab, p, q *process) {
			me := reenter("user-1")
			first := p.acquire("a1", driver.Granted, me)
			p.acquire("a2", driver.Granted, me)
			raised := first.Token + 1000
			p.raise("a2", raised, raised)
			l.wantToken(p.renew("a1", driver.Granted), raised)
			l.wantToken(p.acquire("a3", driver.Granted, me), raised)
		}},
}

// raise raises the token of the row's lease called name, and fails the row
// unless it is want then.
func (p *process) raise(name string, token, want int64) {
	p.Helper()
	p.wantToken(p.renew(name, driver.Granted, raised(token)), want)
}
