package drivertest

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// handOverRows test tickets of processes that receive hints.
var handOverRows = []row{
	{"handover/by hint", Queue | Watch,
		"the waiter sleeps until a hint wakes it with the grant: a release costs one message, not a round of polling",
		func(l *lab, p, q *process) {
			q.listen()
			first := p.acquire("holder", driver.Granted)
			queued := q.acquire("a", driver.Queued, waits(long), confirm(10*l.window))
			start := time.Now()
			p.release("holder", driver.Released)
			hint := q.hear(driver.HintGranted, "a")
			l.greater(hint.Token, first.Token)
			if hint.ConfirmWindow != 10*l.window {
				l.Fatalf("the hint has the window %v, want %v", hint.ConfirmWindow, 10*l.window)
			}
			if queued.Clock != 0 && hint.Clock < queued.Clock {
				l.Fatalf("the hint is dated %v, before the ticket at %v", hint.Clock, queued.Clock)
			}
			l.wantToken(q.by(start, 10*l.window).renew("a", driver.Granted), hint.Token)
		}},
	{"handover/confirmed it lasts", Queue | Watch,
		"the confirmation starts a full TTL, however much of the window was left; a waiter asks if its hint was lost, which counts as a renewal",
		func(l *lab, p, q *process) {
			q.listen()
			for _, name := range []string{"renews", "asks"} {
				p.acquire("holder", driver.Granted)
				q.acquire(name, driver.Queued, waits(long), confirm(3*l.window))
				start := time.Now()
				p.release("holder", driver.Released)
				hint := q.hear(driver.HintGranted, name)
				var got driver.Reply
				if name == "renews" {
					got = q.by(start, 3*l.window).renew(name, driver.Granted)
				} else {
					got = q.by(start, 3*l.window).acquire(name, driver.Granted, waits(long), confirm(3*l.window))
				}
				l.pass(3 * l.window)
				p.acquire("try", driver.Busy)
				if again := q.renew(name, driver.Granted); got.Token != hint.Token || again.Token != hint.Token {
					l.Fatalf("tokens %d and %d, but the hint has %d", got.Token, again.Token, hint.Token)
				}
				q.release(name, driver.Released)
			}
		}},
	{"handover/closes the room", Queue | Watch,
		"the waiter has the lock from the hand-over on; if another party could take it before the confirmation, there would be two holders",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			q.acquire("a", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			p.acquire("try", driver.Busy)
			p.acquire("b", driver.Queued, waits(long))
			if l.cfg.Without&Policies == 0 {
				p.acquire("barger", driver.Busy, policy(driver.Barging))
			}
			q.enters("a")
		}},
	{"handover/a chain", Queue | Watch,
		"each release wakes exactly the next waiter in order, also in another process",
		func(l *lab, p, q *process) {
			procs := []*process{p.listen(), q.listen(), l.process().listen()}
			last := procs[0].acquire("w0", driver.Granted).Token
			const n = 12
			for i := 1; i < n; i++ {
				procs[i%3].acquire(fmt.Sprintf("w%d", i), driver.Queued, waits(long))
			}
			for i := range n {
				name := fmt.Sprintf("w%d", i)
				if i > 0 {
					hint := procs[i%3].hear(driver.HintGranted, name)
					l.greater(hint.Token, last)
					last = hint.Token
					procs[i%3].renew(name, driver.Granted)
				}
				procs[i%3].release(name, driver.Released)
			}
		}},
	{"handover/a head that is gone blocks no request that fits", Queue | Watch | Shared,
		"a reader fits next to the present readers, but must not overtake an earlier writer; if that writer has died, the reader must not wait until its ticket expires",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("r1", driver.Granted, shared)
			for _, name := range []string{"dead1", "dead2"} {
				q.acquire(name, driver.Queued, waits(long), confirm(l.window))
			}
			start := time.Now()
			p.acquire("r2", driver.Queued, shared, waits(long)) // the head is called
			q.hear(driver.HintAsk, "dead1")
			l.cfg.Advance(l.window / 2)
			p.by(start, l.window).acquire("try", driver.Busy, shared) // the head has no more time by that
			l.pass(l.window / 2)
			// The head did not ask, so its process is suspect: its other ticket is not called.
			p.acquire("r2", driver.Granted, shared, waits(long))
		}},
	{"handover/a head that lives keeps its place", Queue | Watch | Shared,
		"the store asks whether the waiter lives, and does not remove it",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("r1", driver.Granted, shared)
			q.acquire("w", driver.Queued, waits(long), confirm(3*l.window))
			start := time.Now()
			p.acquire("r2", driver.Busy, shared) // a request that does not queue calls it as well
			q.hear(driver.HintAsk, "w")
			q.by(start, 3*l.window).renew("w", driver.Queued)
			l.pass(3 * l.window)
			start = time.Now()
			got := p.acquire("r2", driver.Queued, shared, waits(long)) // and again
			if got.RetryAfter > 3*l.window+vague {
				l.Fatalf("RetryAfter is %v; the head has %v to ask", got.RetryAfter, 3*l.window)
			}
			p.release("r1", driver.Released)
			q.by(start, 3*l.window).renew("w", driver.Granted)
		}},
	{"handover/an unheard ticket is not handed the room", Queue | Watch,
		"a waiter without an address would let the window lapse every time; it takes the room by asking, and is not overtaken before",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted)
			p.acquire("mute", driver.Queued, waits(long), confirm(l.window))
			q.acquire("a", driver.Queued, waits(long))
			p.release("holder", driver.Released)
			l.pass(l.window)
			q.renew("a", driver.Queued)
			p.acquire("mute", driver.Granted, waits(long))
			p.release("mute", driver.Released)
			q.enters("a")
		}},
	{"handover/the new head is notified", Queue | Watch,
		"only the head of the queue asks at the holder's expiry; a waiter that becomes the head needs a hint",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("holder", driver.Granted, ttl(long/2))
			p.acquire("head", driver.Queued, waits(long))
			q.acquire("a", driver.Queued, waits(long))
			p.release("head", driver.Left)
			if hint := q.hear(driver.HintAsk, "a"); hint.RetryAfter <= 0 || hint.RetryAfter > long/2+vague {
				l.Fatalf("the RetryAfter of the new head is %v; the holder lives for %v", hint.RetryAfter, long/2)
			}
			q.renew("a", driver.Queued)
		}},
	{"handover/a waiter that leaves passes it on", Queue | Watch,
		"the waiter gave up at the moment of the hand-over; the next waiter must not wait for a window",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("gone", driver.Queued, waits(long))
			q.acquire("a", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "gone")
			p.release("gone", driver.Released)
			q.enters("a")
		}},
	{"handover/a barging waiter is woken", Queue | Watch | Policies,
		"a barging waiter gets a hint that the room is free, and asks; if it were handed the room, no other request could barge",
		func(l *lab, p, q *process) {
			q.listen()
			by := policy(driver.Barging)
			p.acquire("holder", driver.Granted, by)
			q.acquire("a", driver.Queued, waits(long), by)
			p.release("holder", driver.Released)
			for { // an earlier hint may concern the holder's expiry
				if hint := q.hear(driver.HintAsk, "a"); hint.RetryAfter < time.Second {
					break
				}
			}
			p.acquire("b", driver.Granted, by)
			q.renew("a", driver.Queued)
			p.release("b", driver.Released)
			q.renew("a", driver.Granted)
		}},
}

// deadRows test waiters that have died.
var deadRows = []row{
	{"dead/an unconfirmed grant passes on", Queue | Watch,
		"a dead waiter delays the next waiters by its window, never by its TTL",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("dead", driver.Queued, waits(long), confirm(l.window))
			q.acquire("a", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			lost := p.hear(driver.HintGranted, "dead")
			if hint := q.hear(driver.HintAsk, "a"); hint.RetryAfter > l.window+vague {
				l.Fatalf("the RetryAfter of the next waiter is %v; the window is %v", hint.RetryAfter, l.window)
			}
			l.pass(l.window)
			got := q.renew("a", driver.Granted)
			l.greater(got.Token, lost.Token)
			p.renew("dead", driver.Gone)
			q.renew("a", driver.Granted)
		}},
	{"dead/one window for all tickets of a process", Queue | Watch,
		"a process that dies with many waiters must not cost one window for each of them",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			q.acquire("holder", driver.Granted)
			for i := range 80 {
				p.acquire(fmt.Sprintf("dead%d", i), driver.Queued, waits(long), confirm(l.window))
			}
			q.acquire("a", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "dead0")
			l.pass(l.window)
			q.renew("a", driver.Granted)
			p.renew("dead1", driver.Gone)
		}},
	{"dead/a place taken after the hand-over is kept", Queue | Watch,
		"a process that has restarted, or that has lost one waiter without a Release, is served in order of arrival like every process",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("dead", driver.Queued, waits(long), confirm(3*l.window))
			p.acquire("before", driver.Queued, waits(long))
			start := time.Now()
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "dead")
			p.by(start, 3*l.window).acquire("after", driver.Queued, waits(long))
			q.by(start, 3*l.window).acquire("a", driver.Queued, waits(long))
			l.pass(3 * l.window)
			q.renew("a", driver.Queued)
			p.enters("after")
			p.renew("before", driver.Gone)
		}},
	{"dead/a waiter that asks within the window keeps the other tickets of its process", Queue | Watch,
		"one of its waiters did not confirm, but the process is alive",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("dead", driver.Queued, waits(long), confirm(3*l.window))
			p.acquire("other", driver.Queued, waits(long))
			p.acquire("last", driver.Queued, waits(long))
			q.acquire("a", driver.Queued, waits(long))
			start := time.Now()
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "dead")
			l.pass(0)
			p.by(start, 3*l.window).renew("last", driver.Queued)
			l.pass(3 * l.window)
			q.renew("a", driver.Queued)
			p.enters("other")
		}},
	{"dead/a waiter that asks in time keeps the other tickets of its process", Queue | Watch,
		"one hint was lost, but the process is alive: its next request proves it before another request finds it suspect",
		func(l *lab, p, q *process) {
			p.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("slow", driver.Queued, waits(long), confirm(l.window))
			p.acquire("other", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "slow")
			l.pass(l.window)
			p.renew("other", driver.Granted)
		}},
	{"dead/a process that asks again is trusted", Queue | Watch,
		"a pause, or one lost message, must not exclude a living process for good",
		func(l *lab, p, q *process) {
			p.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("slow", driver.Queued, waits(long), confirm(l.window))
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "slow")
			l.pass(l.window)
			p.renew("slow", driver.Gone)
			q.acquire("holder2", driver.Granted)
			p.acquire("again", driver.Queued, waits(long))
			q.release("holder2", driver.Released)
			p.enters("again")
		}},
}
