package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// tokenRows: fencing.
var tokenRows = []row{
	{
		name:  "token/rises over release",
		needs: Tokens,
		why:   "a resource refuses writes with a smaller token than it has seen; a token given twice lets a stale holder write",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			last := int64(0)
			for i := range 20 {
				by, name := []*process{p, q}[i%2], fmt.Sprintf("a%d", i)
				got := by.acquire(name, driver.Granted)
				l.greater(got.Token, last)
				last = got.Token
				by.release(name, driver.Released)
			}
		},
	},
	{
		name:  "token/rises over expiry",
		needs: Tokens,
		why:   "the holder that is most likely to write late is the one that lost its lease",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			last := int64(0)
			for i, by := range []*process{p, q, p} {
				got := by.acquire(fmt.Sprintf("a%d", i), driver.Granted, ttl(l.brief))
				l.greater(got.Token, last)
				last = got.Token
				l.pass(l.brief)
			}
		},
	},
	{
		name:  "token/a refusal mints none",
		needs: Tokens,
		why:   "asking must not wear out tokens, nor move the holder's",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			first := p.acquire("a", driver.Granted)
			for range 5 {
				if got := q.acquire("b", driver.Busy); got.Token != 0 {
					l.Fatalf("a refusal carries token %d", got.Token)
				}
			}
			if got := p.renew("a", driver.Granted); got.Token != first.Token {
				l.Fatalf("the holder's token moved from %d to %d", first.Token, got.Token)
			}
		},
	},
	{
		name:  "token/is above the minimum",
		needs: Tokens | MinToken,
		why:   "a caller that has seen a greater token elsewhere closes the gap that a store with lost data leaves",
		run: func(l *lab) {
			p, q := l.process(), l.process()
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
		},
	},
	{
		name:  "token/a minimum far ahead is refused",
		needs: Tokens | MinToken,
		why:   "one bad caller could use up a key's tokens for ever",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			const far = 1 << 52 // µs: the year 2112
			if _, err := p.try(p.request("a", []option{minToken(far)})); !errors.Is(err, driver.ErrInvalid) {
				l.Fatalf("a minimum of 2^52: %v, want driver.ErrInvalid", err)
			}
			if got := q.acquire("b", driver.Granted); got.Token > far {
				l.Fatalf("token %d: the refused minimum had an effect", got.Token)
			}
		},
	},
}
