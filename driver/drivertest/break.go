package drivertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// reason is a reason of the greatest length.
var reason = `host gone: "db 1" é %d ` + strings.Repeat("日", 77) + "!"

// breakRows test the end of a lease by force.
var breakRows = []row{
	{"break/ends the lease that is named", Break,
		"between inspection and break the lock may get another holder; only the inspected lease may be broken",
		func(l *lab, p, q *process) {
			first := p.acquire("a", driver.Granted)
			q.breaks("b", driver.Gone)
			p.renew("a", driver.Granted)
			q.breaks("a", driver.Released)
			l.greater(q.acquire("b", driver.Granted).Token, first.Token)
			q.breaks("a", driver.Gone)
			q.renew("b", driver.Granted)
		}},
	{"break/the holder learns why", Break,
		"the holder must stop, and needs the reason for its log",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.breaks("a", driver.Released)
			l.wantBroken(p.renew("a", driver.Gone))
			q.acquire("b", driver.Granted)
			l.wantBroken(p.renew("a", driver.Gone))
		}},
	{"break/a broken lease does not come back", Break,
		"the holder may repeat an unanswered request after its lease was broken",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			q.breaks("a", driver.Released)
			l.wantBroken(p.acquire("a", driver.Gone))
			p.acquire("a", driver.Gone, waits(long))
			l.wantBroken(p.release("a", driver.Gone))
			q.acquire("b", driver.Granted)
		}},
	{"break/is followed by the delay", Break | LockDelay,
		"the holder has not stopped yet; its request states how long that may take",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, delay(2*l.brief))
			start := time.Now()
			q.breaks("a", driver.Released)
			q.by(start, 2*l.brief).acquire("b", driver.Busy)
			l.pass(2 * l.brief)
			q.acquire("b", driver.Granted)
		}},
	{"break/a ticket", Break | Queue,
		"a waiter that blocks waiters behind it can be removed, too",
		func(l *lab, p, q *process) {
			p.acquire("holder", driver.Granted)
			opts := []option{waits(long)}
			if l.cfg.Without&LockDelay == 0 {
				opts = append(opts, delay(long)) // which is for a holder
			}
			p.acquire("a", driver.Queued, opts...)
			q.acquire("b", driver.Queued, waits(long))
			q.breaks("a", driver.Left)
			l.wantBroken(p.renew("a", driver.Gone))
			p.acquire("a", driver.Gone, waits(long))
			p.release("holder", driver.Released)
			q.acquire("b", driver.Granted, waits(long))
		}},
	{"break/reaches every subscription", Break | Watch,
		"the store has no address of a holder that took a free room; a hint to all subscriptions reaches it",
		func(l *lab, p, q *process) {
			bystander := l.process().listen()
			p.acquire("a", driver.Granted)
			p.listen() // but its requests have no address
			q.breaks("a", driver.Released)
			p.hearsBreak("a")
			bystander.hearsBreak("a")
		}},
	{"break/names the lock", Break | Watch,
		"ids are unique in their room only; a holder of the same id in another room goes on",
		func(l *lab, p, q *process) {
			p.listen()
			other := l.key + " 2 <&>\"\\\u2028"
			p.acquire("a", driver.Granted)
			p.acquire("a", driver.Granted, in(other))
			q.breaks("a", driver.Released)
			p.hearsBreak("a")
			p.renew("a", driver.Granted, at(other))
			l.key = other
			q.breaks("a", driver.Released)
			p.hearsBreak("a")
		}},
	{"break/reaches a waiter", Break | Watch | Queue,
		"a removed waiter gets a hint at once, before it asks again",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("a", driver.Queued, waits(long))
			p.breaks("a", driver.Left)
			q.hearsBreak("a")
		}},
	{"break/hands the room on", Break | Watch | Queue,
		"a lease is usually broken because other parties wait for the lock",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted)
			q.acquire("b", driver.Queued, waits(long))
			p.breaks("a", driver.Released)
			q.enters("b")
		}},
}

// hearsBreak waits for the hint that the row's lease or ticket called name was broken.
func (p *process) hearsBreak(name string) {
	p.Helper()
	hint := p.hearAny(func(h driver.Hint) bool {
		return h.Kind == driver.HintBroken && h.ID == p.id(name) && h.Key == p.key
	}, fmt.Sprintf("%s broken in %q", name, p.key))
	if hint.Reason != reason {
		p.Fatalf("reason %q", hint.Reason)
	}
}

// breaks breaks the row's lease or ticket called name.
func (p *process) breaks(name string, want driver.State) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := optional[driver.Breaker](p, Break).Break(ctx, p.key, p.id(name), reason)
	if err != nil {
		p.Fatalf("break %s: %v", name, err)
	}
	p.expect("break "+name, reply, want)
}
