package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// watchRows test subscriptions.
var watchRows = []row{
	{"watch/close ends the delivery", Watch | Queue,
		"after Close the data that the function uses may be gone; a late call would fail",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			q.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			q.acquire("b", driver.Queued, waits(long))
			if err := p.sub.Close(); err != nil {
				l.Fatalf("close: %v", err)
			}
			p.sub = nil
			before := len(p.hints)
			q.release("holder", driver.Released) // hands the room to a's address
			q.hear(driver.HintAsk, "b")
			time.Sleep(slack) // for a late hint
			if after := len(p.hints); after != before {
				l.Fatalf("%d hints after the close", after-before)
			}
		}},
	{"watch/close waits for the call under way", Watch | Queue,
		"after Close the data that the function uses may be gone, also for a call that began before",
		func(l *lab, p, q *process) {
			began, leave := make(chan bool, 1), make(chan bool)
			let := sync.OnceFunc(func() { close(leave) })
			defer let()
			p.listenBy(func(h driver.Hint) {
				if h.ID != p.id("a") { // such as of a break in another row
					return
				}
				select {
				case began <- true:
				default:
				}
				<-leave
			})
			q.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			if !arrives(began, patience) {
				l.Fatalf("no hint within %v", patience)
			}
			closed := make(chan bool, 1)
			go func() { _ = p.sub.Close(); closed <- true }()
			if arrives(closed, slack) {
				l.Error("closed while the function was being called")
			}
			let()
			if !arrives(closed, patience) {
				l.Fatalf("not closed within %v", patience)
			}
			p.sub = nil
		}},
	{"watch/one hint at a time", Watch | Queue,
		"the function updates a list of waiters, and does not expect concurrent calls",
		func(l *lab, p, q *process) {
			const n = 8
			var inside atomic.Int64
			heard := make(chan bool, 100)
			p.listenBy(func(driver.Hint) {
				if n := inside.Add(1); n > 1 {
					l.Errorf("%d calls at once", n)
				}
				time.Sleep(rounding)
				inside.Add(-1)
				select {
				case heard <- true:
				default:
				}
			})
			for i := range n {
				key := fmt.Sprintf("%s/%d", l.key, i)
				q.acquire(fmt.Sprintf("holder%d", i), driver.Granted, in(key))
				p.acquire(fmt.Sprintf("a%d", i), driver.Queued, waits(long), in(key))
			}
			for i := range n {
				q.release(fmt.Sprintf("holder%d", i), driver.Released, at(fmt.Sprintf("%s/%d", l.key, i)))
			}
			for i := range n {
				if !arrives(heard, patience) {
					l.Fatalf("%d hints of %d within %v", i, n, patience)
				}
			}
			if err := p.sub.Close(); err != nil { // the function belongs to the row
				l.Fatalf("close: %v", err)
			}
			p.sub = nil
		}},
	{"watch/each subscription of a driver gets its own hints", Watch | Queue,
		"clients may share a driver, and each has only its own waiters",
		func(l *lab, p, q *process) {
			p.listen()
			other := &process{lab: l, d: p.d} // another client
			other.listen()
			defer func() { _ = other.sub.Close() }()
			if p.address() == other.address() {
				l.Fatalf("two subscriptions share the address %q", p.address())
			}
			q.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			other.acquire("b", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "a")
			p.release("a", driver.Released)
			other.hear(driver.HintGranted, "b")
			p.release("b", driver.Released)
		}},
	{"watch/each process gets its own hints", Watch | Queue,
		"a release wakes one waiter, not all processes",
		func(l *lab, p, q *process) {
			p.listen()
			q.listen()
			if p.address() == q.address() {
				l.Fatalf("two processes share the address %q", p.address())
			}
			q.acquire("holder", driver.Granted)
			p.acquire("a", driver.Queued, waits(long))
			q.release("holder", driver.Released)
			p.hear(driver.HintGranted, "a")
			for len(q.hints) > 0 {
				if h := <-q.hints; h.ID == l.id("a") {
					l.Fatalf("another process received %+v", h)
				}
			}
		}},
}

// crowdRows test many concurrent callers. They read and write the guarded value in two steps,
// so that overlaps lose entries. The steps are atomic, because the store (a file, a server)
// orders them, which the race detector cannot see.
var crowdRows = []row{
	{"crowd/trying", 0,
		"exclusion must hold when many callers try at the same moment",
		func(l *lab, p, q *process) {
			var room guarded
			l.crowd(4, 12, nil, func(int64) { room.visit(l) })
			room.count(l, 3*4*12)
		}},
	{"crowd/waiting", Queue,
		"every waiter is served, one at a time, with rising tokens",
		func(l *lab, p, q *process) {
			var room guarded
			var last atomic.Int64
			l.crowd(4, 12, []option{waits(long)}, func(token int64) {
				room.visit(l)
				if before := last.Swap(token); token <= before && l.cfg.Without&Tokens == 0 {
					l.Errorf("token %d after %d", token, before)
				}
			})
			room.count(l, 3*4*12)
		}},
	{"crowd/places", Limits,
		"there are never more holders than places, however many callers ask at once",
		func(l *lab, p, q *process) {
			var inside atomic.Int64
			l.crowd(4, 8, []option{places(2, 1)}, func(int64) {
				if n := inside.Add(1); n > 2 {
					l.Errorf("%d holders of 2 places", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
			})
		}},
}

// guarded detects two holders that are active at the same time.
type guarded struct {
	inside, visits atomic.Int64
}

func (g *guarded) visit(l *lab) {
	if n := g.inside.Add(1); n != 1 {
		l.Errorf("%d holders at once", n)
	}
	n := g.visits.Load()
	runtime.Gosched()
	g.visits.Store(n + 1)
	g.inside.Add(-1)
}

func (g *guarded) count(l *lab, want int64) {
	l.Helper()
	if n := g.visits.Load(); n != want {
		l.Fatalf("%d entries, want %d: some overlapped, or were never granted", n, want)
	}
}

// crowd starts goroutines in three processes. Each acquires the lock times times, and runs work
// while it holds it.
func (l *lab) crowd(goroutines, times int, opts []option, work func(token int64)) {
	l.Helper()
	// All acquisitions must fit in this time, one after the other, also on a busy machine.
	ctx, cancel := context.WithTimeout(context.Background(), 12*patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		p := l.process()
		for j := range goroutines {
			wg.Go(func() {
				for k := range times {
					name := fmt.Sprintf("m%d.%d.%d", i, j, k)
					if err := p.visit(ctx, p.request(name, opts), work); err != nil {
						l.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// visit asks until the lock is granted, runs work, and releases the lock.
func (p *process) visit(ctx context.Context, req driver.Request, work func(token int64)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 16*time.Millisecond) {
		reply, err := p.d.Acquire(ctx, req)
		if err != nil {
			return err
		}
		if reply.State == driver.Granted {
			work(reply.Token)
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	reply, err := p.d.Release(ctx, driver.Ref{Key: req.Key, ID: req.ID})
	if err == nil && reply.State != driver.Released {
		err = errors.New("release: " + states[reply.State])
	}
	return err
}
