package drivertest

import (
	"errors"

	"github.com/leasehold-go/leasehold/driver"
)

// refusalRows: what a store lacks it says, and does not pretend.
var refusalRows = []row{
	refuses(Shared, "a reader let in as a writer, or a writer beside readers, is worse than an error", shared),
	refuses(Limits, "a limit that is not kept is no limit", places(3, 1)),
	refuses(Resize, "a limit that was not changed is still the old one", places(3, 1), resize),
	refuses(Reentry, "an owner that cannot enter again would wait for itself", reenter("user-1")),
	refuses(LockDelay, "a caller that asked for the delay relies on it", delay(long)),
	refuses(MinToken, "a token below what the caller has seen is refused where it is used", minToken(1)),
	refuses(Guard, "a store that cannot tell that it has lost its data must not be trusted to tell", guard),
	refuses(Queue, "a caller that insists on the order of arrival would be overtaken for ever", ordered),
	refuses(Policies, "a policy that is not kept starves those it was meant for", policy(driver.WritersFirst)),
	{"refusal/a waiter is not queued", Queue,
		"a waiter that is not queued polls; it must not believe that it has a place",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, waits(long))
			q.acquire("b", driver.Busy, waits(long))
			p.release("a", driver.Released)
			q.acquire("b", driver.Granted, waits(long))
		}},
	{"refusal/Tokens", Tokens,
		"a token that does not rise is worse than none: 0 says that there is none",
		func(l *lab, p, q *process) {
			if got := p.acquire("a", driver.Granted); got.Token != 0 {
				l.Fatalf("token %d", got.Token)
			}
		}},
}

// refuses is the row of a request that a store without f turns down, before it
// is sent and when it is.
func refuses(f Feature, why string, shape ...option) row {
	return row{"refusal/" + f.String(), f, why, func(l *lab, p, q *process) {
		req := p.request("a", shape)
		if err := driver.Supports(p.d, req); !errors.Is(err, errors.ErrUnsupported) {
			l.Errorf("driver.Supports: %v, want errors.ErrUnsupported", err)
		}
		if _, err := p.try(req); !errors.Is(err, errors.ErrUnsupported) {
			l.Errorf("acquire: %v, want errors.ErrUnsupported", err)
		}
		q.acquire("b", driver.Granted)
	}}
}
