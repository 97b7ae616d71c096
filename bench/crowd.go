package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// processes is the number of clients that the waiters are spread over.
const processes = 4

// holding is how long a waiter keeps the lock.
const holding = time.Millisecond

// apart is how much earlier a waiter must have come to count as overtaken:
// calls that are closer may reach the server in either order.
const apart = 5 * time.Millisecond

// turn is one wait for a lock and its outcome, in time since the start.
type turn struct {
	waiter              int
	called, got, leaves time.Duration
	served              bool // false if the end came first, at got
}

// crowd is a set of waiters for one key.
type crowd struct {
	who   contender
	key   string
	procs []process
	start time.Time

	mu    sync.Mutex
	turns []turn
	err   error
}

// gather opens the processes of a crowd and spreads the waiters over them. Each process has
// taken a lock once, so that its connections are open.
func (b *bench) gather(ctx context.Context, c contender, key string, waiters int) (*crowd, error) {
	ctx, cancel := b.limited(ctx, 0)
	defer cancel()
	s := settings{ttl: halfMinute.ttl, waiters: (waiters + processes - 1) / processes}
	procs, err := b.openAll(slices.Repeat([]contender{c}, processes), s)
	if err != nil {
		return nil, err
	}
	for i, p := range procs {
		if err := lockOnce(ctx, p, fmt.Sprintf("%s:warm:%d", key, i)); err != nil {
			closeAll(procs)
			return nil, err
		}
	}
	return &crowd{who: c, key: key, procs: procs, start: time.Now()}, nil
}

// wait runs one turn of a waiter. It reports whether the waiter got the lock.
func (g *crowd) wait(ctx context.Context, waiter int) bool {
	return g.turn(ctx, waiter, holding, func() (held, error) { return g.procs[waiter%processes].Lock(ctx, g.key) })
}

// turn takes a lock, keeps it and releases it.
func (g *crowd) turn(ctx context.Context, waiter int, keep time.Duration, take func() (held, error)) bool {
	t := turn{waiter: waiter, called: time.Since(g.start)}
	h, err := take()
	t.got = time.Since(g.start)
	if err == nil {
		t.served = true
		stay(keep)
		t.leaves = time.Since(g.start)
		err = h.Release()
	}
	if ctx.Err() != nil { // some leases end with the context of their wait
		err = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turns = append(g.turns, t)
	if g.err == nil {
		g.err = err
	}
	return t.served
}

// stay keeps the lock for d. The thread sleeps in the kernel, because a sleep of Go waits together with
// the network, in whole milliseconds: a holder that receives a message during the sleep, such as the answer
// to a confirmation, would stay for up to a millisecond longer than other holders.
func stay(d time.Duration) {
	left := syscall.NsecToTimespec(d.Nanoseconds())
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

// served returns the turns that got the lock after from and released it before
// to, in the order of their grants. If two held it at once, served prints that, or returns
// an error if the contender is ours.
func (g *crowd) served(from, to time.Duration) ([]turn, error) {
	if g.err != nil {
		return nil, g.err
	}
	var out []turn
	for _, t := range g.turns {
		if t.served && t.got >= from && t.leaves <= to {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b turn) int { return cmp.Compare(a.got, b.got) })
	for i := 1; i < len(out); i++ {
		if out[i].got >= out[i-1].leaves {
			continue
		}
		if g.who.kind == ours {
			return nil, fmt.Errorf("waiters %d and %d held the lock at once", out[i-1].waiter, out[i].waiter)
		}
		fmt.Fprintf(os.Stderr, "bench: %s: two waiters held the lock at once\n", g.who.name)
	}
	return out, nil
}

// gaps returns the times from a release to the next holder, in ms. They contain
// the whole call of the release that comes before the hand-over.
func gaps(served []turn) []float64 {
	var out []float64
	for i := 1; i < len(served); i++ {
		out = append(out, millis(served[i].got-served[i-1].leaves))
	}
	return out
}

// overtakers returns the part of the acquisitions that passed an earlier
// waiter.
func overtakers(served, all []turn) float64 {
	n := 0
	for _, t := range served {
		if slices.ContainsFunc(all, func(o turn) bool { return o.called < t.called-apart && o.got > t.got }) {
			n++
		}
	}
	return float64(n) / float64(len(served))
}
