package drivertest

import (
	"errors"

	"github.com/leasehold-go/leasehold/driver"
)

// refusalRows test that a store refuses the features that it lacks.
var refusalRows = []row{
	refuses(Shared, "a reader granted as a writer, or a writer next to readers, is worse than an error", shared),
	refuses(Limits, "a limit must be enforced, or refused", places(3, 1)),
	refuses(Resize, "a limit that was not changed is still the old one", places(3, 1), resize),
	refuses(Reentry, "an owner that cannot enter again would wait for itself", reenter("user-1")),
	refuses(LockDelay, "a caller that asked for the delay relies on it", delay(long)),
	refuses(MinToken, "a resource refuses a token below the last that it has seen", minToken(1)),
	refuses(Guard, "a store that cannot detect a loss of its data must not claim to detect it", guard),
	refuses(Queue, "a caller that insists on the order of arrival would be overtaken for ever", ordered),
	refuses(Policies, "a policy that is not enforced starves the waiters that it favours", policy(driver.WritersFirst)),
	refuses(Policies, "a policy that is not enforced starves the waiters that it favours", policy(driver.ReadersFirst)),
	{"refusal/a waiter is not queued", Queue,
		"a waiter that is not queued polls; the answer must not claim that it has a place",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, waits(long))
			q.acquire("b", driver.Busy, waits(long))
			p.release("a", driver.Released)
			q.acquire("b", driver.Granted, waits(long))
		}},
	{"refusal/Tokens", Tokens,
		"a token that does not rise is worse than no token; 0 means that there is no token",
		func(l *lab, p, q *process) {
			l.wantToken(p.acquire("a", driver.Granted), 0)
		}},
}

// refuses returns the row of a request that a store without f refuses: driver.Supports
// before it is sent, and Acquire.
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
