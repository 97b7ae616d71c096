package drivertest

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// limitRows test places and weights.
var limitRows = []row{
	{"limit/the next ask is at the first place that ends", Limits,
		"the place of a dead holder is free when its lease expires, even if other holders stay longer",
		func(l *lab, p, q *process) {
			p.acquire("stays", driver.Granted, places(2, 1))
			start := time.Now()
			p.acquire("dies", driver.Granted, places(2, 1), ttl(l.brief))
			got := q.by(start, l.brief).acquire("b", driver.Busy, places(2, 1))
			if got.RetryAfter > l.brief+vague {
				l.Fatalf("next ask in %v, but one place ends in %v", got.RetryAfter, l.brief)
			}
			if len(got.Holders) > 0 && got.Holders[0].ID != l.id("stays") {
				l.Fatalf("the first holder in the reply is %q, want the holder that stays longest", got.Holders[0].ID)
			}
			if l.cfg.Without&Queue == 0 {
				if next := q.by(start, l.brief).acquire("b", driver.Queued, places(2, 1), waits(long)).RetryAfter; next > l.brief+vague {
					l.Fatalf("the RetryAfter of the first waiter is %v, but one place ends in %v", next, l.brief)
				}
			}
			l.pass(l.brief)
			q.acquire("b", driver.Granted, places(2, 1), waits(long))
		}},
	{"limit/is kept", Limits,
		"a semaphore of three admits three",
		func(l *lab, p, q *process) {
			for _, name := range []string{"a", "b", "c"} {
				p.acquire(name, driver.Granted, places(3, 1))
			}
			q.acquire("d", driver.Busy, places(3, 1))
			q.acquire("w", driver.Busy)
			p.acquire("a", driver.Granted, places(3, 1))
			p.release("b", driver.Released)
			p.release("b", driver.Gone)
			q.acquire("d", driver.Granted, places(3, 1))
			q.acquire("e", driver.Busy, places(3, 1))
		}},
	{"limit/counts weights", Limits,
		"a request for two places takes two, and a request without a weight takes one",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(4, 2))
			q.acquire("b", driver.Busy, places(4, 3))
			q.acquire("c", driver.Granted, places(4, 0))
			q.acquire("d", driver.Busy, places(4, 2))
			q.acquire("e", driver.Granted, places(4, 1))
			q.acquire("f", driver.Busy, places(4, 1))
			p.release("a", driver.Released)
			q.acquire("d", driver.Granted, places(4, 2))
		}},
	{"limit/HR_D4 counts the greatest weights", Limits,
		"the sum of weights may exceed an int of 32 bits, and must not overflow into free places",
		func(l *lab, p, q *process) {
			const most = driver.MaxPlaces
			p.acquire("a", driver.Granted, places(most, most-1))
			q.acquire("b", driver.Busy, places(most, most))
			q.acquire("c", driver.Busy, places(most, 2))
			q.acquire("d", driver.Granted, places(most, 1))
			p.release("a", driver.Released)
			q.acquire("b", driver.Busy, places(most, most))
		}},
	{"limit/HR_D4 is bounded", Limits,
		"numbers that a program of 32 bits cannot read would hide the lock from it",
		func(l *lab, p, q *process) {
			var beyond int64 = driver.MaxPlaces + 1 // negative where an int has 32 bits
			for _, odd := range []option{places(int(beyond), 1), places(0, int(beyond)), places(-1, 1), places(3, -1)} {
				p.refused("a", driver.ErrInvalid, odd)
			}
			p.acquire("b", driver.Granted)
		}},
	{"limit/an expired place returns", Limits,
		"the places of a dead holder become free once; its late release frees no further places",
		func(l *lab, p, q *process) {
			p.acquire("dead", driver.Granted, places(3, 2), ttl(l.brief))
			q.acquire("a", driver.Granted, places(3, 1))
			l.pass(l.brief)
			q.acquire("b", driver.Granted, places(3, 2))
			p.release("dead", driver.Gone)
			p.renew("dead", driver.Gone)
			q.acquire("c", driver.Busy, places(3, 1))
		}},
	{"limit/disagreement is an error", Limits,
		"two programs that state different limits are misconfigured; the store must not choose one of them, and present holders go on",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(2, 1))
			for _, limit := range []int{1, 3, 0} {
				q.refused("b", driver.ErrMismatch, places(limit, 1))
			}
			p.renew("a", driver.Granted)
			q.acquire("c", driver.Granted, places(2, 1))
			q.acquire("d", driver.Busy, places(2, 1))
			p.release("a", driver.Released)
			q.release("c", driver.Released)
			q.acquire("e", driver.Granted, places(3, 3))
		}},
	{"limit/a weight above it is an error", Limits,
		"a request that can never be served must not wait for ever",
		func(l *lab, p, q *process) {
			p.refused("a", driver.ErrInvalid, places(2, 3), waits(long))
			q.acquire("b", driver.Granted)
		}},
	{"limit/a heavy request is not starved", Limits | Queue,
		"places that become free one by one would always be taken by small requests",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(3, 1))
			p.acquire("b", driver.Granted, places(3, 1))
			q.acquire("heavy", driver.Queued, places(3, 3), waits(long))
			p.acquire("small", driver.Busy, places(3, 1))
			p.acquire("small", driver.Queued, places(3, 1), waits(long))
			p.release("a", driver.Released)
			p.acquire("small", driver.Queued, places(3, 1), waits(long))
			p.release("b", driver.Released)
			p.acquire("small", driver.Queued, places(3, 1), waits(long))
			q.acquire("heavy", driver.Granted, places(3, 3), waits(long))
			q.release("heavy", driver.Released)
			p.acquire("small", driver.Granted, places(3, 1), waits(long))
		}},
	{"limit/places are handed over", Limits | Queue | Watch,
		"waiters that fit are woken in order, and no more than fit",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted, places(3, 3))
			for _, name := range []string{"b", "c", "d", "e"} {
				q.acquire(name, driver.Queued, places(3, 1), waits(long))
			}
			p.release("a", driver.Released)
			q.enters("b", "c", "d")
			q.renew("e", driver.Queued)
			q.release("c", driver.Released)
			q.enters("e")
		}},
	{"limit/places have numbers", Limits,
		"a job that has a place must know which, such as which graphics card: no other live holder may have it, and it must not change",
		func(l *lab, p, q *process) {
			l.numbered(p.acquire("a", driver.Granted, places(5, 1)), "0")
			l.numbered(q.acquire("b", driver.Granted, places(5, 2)), "1,2")
			p.acquire("c", driver.Granted, places(5, 1))
			p.release("a", driver.Released)
			l.numbered(q.renew("b", driver.Granted), "1,2")
			l.numbered(p.acquire("dies", driver.Granted, places(5, 2), ttl(l.brief)), "0,4")
			l.numbered(q.acquire("b", driver.Granted, places(5, 2)), "1,2")
			l.pass(l.brief)
			l.numbered(p.acquire("d", driver.Granted, places(5, 1)), "0")
			l.numbered(p.acquire("e", driver.Granted, places(5, 1)), "4")
		}},
	{"limit/places that are handed over have numbers", Limits | Queue | Watch,
		"a waiter may begin to work at the hint, before it has asked again",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted, places(3, 2))
			p.acquire("b", driver.Granted, places(3, 1))
			q.acquire("c", driver.Queued, places(3, 1), waits(long))
			q.acquire("d", driver.Queued, places(3, 1), waits(long))
			p.release("a", driver.Released)
			for i, name := range []string{"c", "d"} {
				want := driver.PlacesOf([]int{i})
				if got := q.hear(driver.HintGranted, name).Places; got != want {
					l.Fatalf("the hint to %s has the places %q, want %q", name, got, want)
				}
				l.numbered(q.renew(name, driver.Granted), want)
			}
		}},
	{"limit/only few places have numbers", Limits,
		"a limit of millions is a budget: numbers would cost more than they are worth",
		func(l *lab, p, q *process) {
			const most = driver.MaxNumbered
			l.numbered(p.acquire("a", driver.Granted, places(most+1, 1)), "")
			l.numbered(p.acquire("b", driver.Granted, in(l.key+"-2"), places(most, 3)), "0,1,2")
			l.numbered(q.acquire("c", driver.Granted, in(l.key+"-2"), places(most, most-3)), driver.PlacesOf(upTo(3, most)))
			l.numbered(p.acquire("reader", driver.Granted, in(l.key+"-3"), shared), "")
			l.numbered(p.acquire("writer", driver.Granted, in(l.key+"-4")), "")
		}},
}

// numbered checks the places of a grant.
func (l *lab) numbered(got driver.Reply, want driver.Places) {
	l.Helper()
	if got.Places != want {
		l.Fatalf("places %q, want %q", got.Places, want)
	}
}

// upTo returns the numbers from first to below end.
func upTo(first, end int) (numbers []int) {
	for n := first; n < end; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// resizeRows test a limit that changes.
var resizeRows = []row{
	{"resize/takes no place away", Limits | Resize,
		"holders keep their places if the limit falls; no request is granted before there is room by the new limit",
		func(l *lab, p, q *process) {
			for _, name := range []string{"a", "b", "c"} {
				p.acquire(name, driver.Granted, places(3, 1))
			}
			q.acquire("to-1", driver.Resized, places(1, 1), resize)
			for i, name := range []string{"a", "b", "c"} {
				l.numbered(p.renew(name, driver.Granted), driver.PlacesOf([]int{i}))
				q.acquire("d", driver.Busy, places(1, 1))
				p.release(name, driver.Released)
			}
			l.numbered(q.acquire("d", driver.Granted, places(1, 1)), "0")
		}},
	{"resize/is in force at once", Limits | Resize,
		"a request with the old limit fails, and the new places can be taken",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(1, 1))
			q.acquire("b", driver.Busy, places(1, 1))
			q.acquire("to-2", driver.Resized, places(2, 1), resize)
			q.refused("b", driver.ErrMismatch, places(1, 1))
			q.acquire("b", driver.Granted, places(2, 1))
			p.acquire("c", driver.Busy, places(2, 1))
			p.renew("a", driver.Granted)
		}},
	{"resize/wakes waiters that fit now", Limits | Resize | Queue | Watch,
		"a new place must not stay empty while there are waiters",
		func(l *lab, p, q *process) {
			q.listen()
			p.acquire("a", driver.Granted, places(1, 1))
			q.acquire("b", driver.Queued, places(1, 1), waits(long))
			q.acquire("c", driver.Queued, places(1, 1), waits(long))
			p.acquire("to-2", driver.Resized, places(2, 1), resize)
			q.enters("b")
			q.renew("c", driver.Queued)
		}},
	{"resize/a waiter that can never enter blocks no waiter", Limits | Resize | Queue,
		"a waiter for more places than the new limit would block all waiters behind it for ever",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(3, 1))
			q.acquire("heavy", driver.Queued, places(3, 3), waits(long))
			q.acquire("light", driver.Queued, places(3, 1), waits(long))
			p.acquire("to-2", driver.Resized, places(2, 1), resize)
			q.acquire("light", driver.Granted, places(2, 1), waits(long))
		}},
	{"resize/by an id that is rejected", Limits | Resize | RejectIDFor,
		"a request that went unanswered may still be on its way, and must not undo a later one when it arrives",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, places(4, 1))
			q.acquire("to-5", driver.Resized, places(5, 1), resize)
			q.release("to-5", driver.Gone, rejects(long))
			q.acquire("once-to-6", driver.Resized, places(6, 1), resize, once)
			q.release("once-to-6", driver.Gone, singleUse)
			p.acquire("to-10", driver.Resized, places(10, 1), resize)
			q.acquire("to-5", driver.Gone, places(5, 1), resize)
			q.acquire("once-to-6", driver.Gone, places(6, 1), resize, once)
			q.acquire("b", driver.Granted, places(10, 1))
			q.acquire("to-7", driver.Resized, places(7, 1), resize, once)
			q.acquire("c", driver.Granted, places(7, 1))
		}},
	{"resize/of a room without sharers", Limits | Resize,
		"there is no limit to change: the first shared holder states it",
		func(l *lab, p, q *process) {
			p.acquire("to-2", driver.Gone, places(2, 1), resize)
			p.acquire("a", driver.Granted, places(3, 1))
		}},
}
