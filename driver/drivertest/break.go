package drivertest

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

const reason = `host gone: "db 1" é %d`

// breakRows: ending a lease by force.
var breakRows = []row{
	{
		name:  "break/ends the lease that is named",
		needs: Break,
		why:   "between looking and breaking the lease may have changed hands; only the lease that was looked at may be broken",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			first := p.acquire("a", driver.Granted)
			q.breaks("b", driver.Gone)
			p.renew("a", driver.Granted)
			q.breaks("a", driver.Released)
			l.greater(q.acquire("b", driver.Granted).Token, first.Token)
			q.breaks("a", driver.Gone)
			q.renew("b", driver.Granted)
		},
	},
	{
		name:  "break/the holder learns why",
		needs: Break,
		why:   "the holder must stop, and its log should say who stopped it",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted)
			q.breaks("a", driver.Released)
			if got := p.renew("a", driver.Gone); !got.Broken || got.Reason != reason {
				l.Fatalf("broken %v, reason %q", got.Broken, got.Reason)
			}
			q.acquire("b", driver.Granted)
			if got := p.renew("a", driver.Gone); !got.Broken || got.Reason != reason {
				l.Fatalf("asked again: broken %v, reason %q", got.Broken, got.Reason)
			}
		},
	},
	{
		name:  "break/a broken lease does not come back",
		needs: Break,
		why:   "the holder may repeat an unanswered request after its lease was broken",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted)
			q.breaks("a", driver.Released)
			p.acquire("a", driver.Gone)
			p.acquire("a", driver.Gone, waits(long))
			p.release("a", driver.Gone)
			q.acquire("b", driver.Granted)
		},
	},
	{
		name:  "break/is followed by the delay",
		needs: Break | LockDelay,
		why:   "the holder has not stopped yet; its request said how long that may take",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("a", driver.Granted, delay(2*brief))
			start := time.Now()
			q.breaks("a", driver.Released)
			q.acquireBy(start, 2*brief, "b", driver.Busy)
			l.pass(2 * brief)
			q.acquire("b", driver.Granted)
		},
	},
	{
		name:  "break/a ticket",
		needs: Break | Queue,
		why:   "a waiter that is in the way can be sent away too",
		run: func(l *lab) {
			p, q := l.process(), l.process()
			p.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			q.acquire("b", driver.Queued, waits(long))
			q.breaks("a", driver.Left)
			if got := p.renew("a", driver.Gone); !got.Broken || got.Reason != reason {
				l.Fatalf("broken %v, reason %q", got.Broken, got.Reason)
			}
			p.acquire("a", driver.Gone, waits(long))
			p.release("holder", driver.Released)
			q.acquire("b", driver.Granted, waits(long))
		},
	},
	{
		name:  "break/the holder is told",
		needs: Break | Watch,
		why:   "a holder that listens stops at once, not at its next renewal",
		run: func(l *lab) {
			p, q := l.process().listen(), l.process()
			p.acquire("a", driver.Granted)
			q.breaks("a", driver.Released)
			if hint := p.hear(driver.HintBroken, "a"); hint.Reason != reason {
				l.Fatalf("reason %q", hint.Reason)
			}
		},
	},
	{
		name:  "break/hands the room on",
		needs: Break | Watch | Queue,
		why:   "the lease was broken because somebody waits",
		run: func(l *lab) {
			p, q := l.process(), l.process().listen()
			p.acquire("a", driver.Granted)
			q.acquire("b", driver.Queued, waits(long))
			p.breaks("a", driver.Released)
			q.hear(driver.HintGranted, "b")
			q.renew("b", driver.Granted)
		},
	},
}

// breaks breaks the row's lease or ticket called name.
func (p *process) breaks(name string, want driver.State) {
	p.Helper()
	b, ok := driver.As[driver.Breaker](p.d)
	if !ok {
		p.Fatal("the driver is no driver.Breaker; say Without: drivertest.Break if it need not be")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := b.Break(ctx, p.key, p.id(name), reason)
	if err != nil {
		p.Fatalf("break %s: %v", name, err)
	}
	p.expect("break "+name, reply, want)
}
