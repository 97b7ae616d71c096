package drivertest

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// tokenRows test fencing tokens.
var tokenRows = []row{
	{"token/rises over release", Tokens,
		"a resource refuses writes with a smaller token than it has seen; if two leases had one token, a stale holder could write",
		func(l *lab, p, q *process) {
			last := int64(0)
			for i := range 20 {
				by, name := []*process{p, q}[i%2], fmt.Sprintf("a%d", i)
				got := by.acquire(name, driver.Granted)
				l.greater(got.Token, last)
				last = got.Token
				by.release(name, driver.Released)
			}
		}},
	{"token/a refusal mints no token", Tokens,
		"refused requests must not use up tokens, nor change the holder's token",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			for range 5 {
				l.wantToken(q.acquire("b", driver.Busy), 0)
			}
			l.wantToken(p.renew("a", driver.Granted), first.Token)
		}},
	{"token/is above the minimum", Tokens | MinToken,
		"a caller that has seen a greater token makes up for a store that has lost its data",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			p.release("a", driver.Released)
			least := first.Token + time.Hour.Microseconds()
			second := p.acquire("b", driver.Granted, minToken(least))
			l.greater(second.Token, least)
			p.release("b", driver.Released)
			l.greater(q.acquire("c", driver.Granted).Token, second.Token)
			q.release("c", driver.Released)
			third := q.acquire("d", driver.Granted, minToken(1))
			l.greater(third.Token, second.Token)
		}},
	{"token/a minimum far ahead is refused", Tokens | MinToken,
		"one bad caller could use up a key's tokens for ever",
		func(l *lab, p, q *process) {
			const far = 1 << 52 // µs: the year 2112
			p.refused("a", driver.ErrInvalid, minToken(far))
			if got := q.acquire("b", driver.Granted); got.Token > far {
				l.Fatalf("token %d: the refused minimum had an effect", got.Token)
			}
		}},
}
