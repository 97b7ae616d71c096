package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// Bounds of waiting from the documentation of the package, and the time that a short step may
// take.
const (
	window    = time.Second            // a lock that was handed to a dead waiter waits for it
	heartbeat = 5 * time.Second        // every waiter asks at least that often
	slack     = 800 * time.Millisecond // less than the window that a lost wake-up costs
)

// waitRows are the W cases: each of them for waiters of every kind.
var waitRows = slices.Concat(
	each("W2_CancelledHeadDisturbsNobody", kinds, func(l *lab, k kind) { l.cancelled(k, 0) }),
	each("W2_CancelledMiddleDisturbsNobody", kinds, func(l *lab, k kind) { l.cancelled(k, 1) }),
	each("W2_CancelledTailDisturbsNobody", kinds, func(l *lab, k kind) { l.cancelled(k, 2) }),
	each("W2_CancelledHeadLetsInWhomItKeptOut", parting, func(l *lab, k kind) {
		l.parted(k, k.ask, slack, func(cancel func(), _ *mortal) { cancel() })
	}),
	each("W2_HeadThatTimesOutLetsInWhomItKeptOut", parting, func(l *lab, k kind) {
		l.parted(k, k.ask.with(leasehold.WithMaxWait(2*life)), 2*life+slack, func(func(), *mortal) {})
	}),
	each("W5_HeadThatDiesLetsInWhomItKeptOut", parting, func(l *lab, k kind) {
		// The next poll of the rival calls the head, which then has its whole window.
		l.parted(k, k.ask, 2*window+2*slack, func(_ func(), m *mortal) { m.die() })
	}),
	each("W3_WaitsEndWithoutAnyHint", kinds, deaf),
	each("W4_HeadEntersWhenADeadHoldersLeaseEnds", kinds, deadHolder),
	each("W5_DeadHeadCostsOneWindow", kinds, func(l *lab, k kind) { l.deadWaiters(k, 1) }),
	each("W6_DeadWaitersCostOneWindow", kinds, func(l *lab, k kind) { l.deadWaiters(k, 100) }),
	[]row{{"W7_OrderOutlivesHeartbeats", outlives}},
	each("W8_TryNeverOvertakesALiveWaiter", kinds, overtaking),
	each("W10_GrantToOneThatHasJustTimedOutPassesOn", kinds, passedOn),
	each("W11_ArrivalsOfOneMomentAreServedInTheStoresOrder", kinds, sameMoment),
	each("W12_OneStrategyServesManyWaitsAtATimeAndAgain", kinds, oneStrategy),
	each("P5_WaitEndsUnservedInTime", kinds, func(l *lab, k kind) {
		a, _ := l.client(leasehold.WithName("holder"))
		b, _ := l.client()
		lease := l.enter(k.block, a)
		ctx, cancel := context.WithTimeout(context.Background(), life)
		defer cancel()
		start := time.Now()
		_, err := k.ask(b, l.key).lock(ctx)
		l.wantErr(err, leasehold.ErrHeld, context.DeadlineExceeded)
		held := new(leasehold.HeldError)
		if !errors.As(err, &held) || held.Owner != "holder" || held.Position != 1 || held.Waited < life/2 {
			l.Errorf("%v: %+v", err, held)
		}
		if got := time.Since(start); got > life+slack {
			l.Errorf("took %v", got)
		}
		l.wantQueue(b, 0)
		l.release(lease)
	}),
)

// wantQueue waits until the given number of waiters are queued.
func (l *lab) wantQueue(c *leasehold.Client, n int) {
	l.Helper()
	var got int
	eventually(l.TB, patience, func() bool { got = l.queued(c); return got == n },
		func() string { return fmt.Sprintf("%d wait, want %d", got, n) })
}

// cancelled starts three waiters, cancels one, and expects the remaining two in order.
func (l *lab) cancelled(k kind, place int) {
	a, _ := l.client()
	b, _ := l.client()
	first := l.enter(k.block, a)
	got := make(chan outcome, 3)
	ctx, cancel := context.WithCancel(context.Background())
	names := []string{"0", "1", "2"}
	for i, name := range names {
		c := context.Background()
		if i == place {
			c = ctx
		}
		l.await(c, k.ask, b, name, got)
	}
	cancel()
	l.wantErr(l.receive(got, time.Second).err, context.Canceled, leasehold.ErrHeld)
	l.wantQueue(b, 2)
	l.release(first)
	l.inOrder(k, got, slack, slices.Delete(names, place, place+1)...)
	l.wantFree(0)
}

// parted starts an asker that waits, and behind it a rival that does not exclude the blocker.
// When the asker leaves, the rival gets the lock.
func (l *lab) parted(k kind, ask use, within time.Duration, leave func(cancel func(), m *mortal)) {
	a, _ := l.client()
	b, m := l.client()
	c, _ := l.client()
	first := l.enter(k.block, a)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	asker, rival := l.queue(ctx, ask, b, "asker"), l.queue(context.Background(), k.rival, c, "rival")
	l.listening(a, 2)
	leave(cancel, m)
	l.release(l.entered(rival, within))
	cancel()
	if o := l.receive(asker, time.Second); o.err == nil {
		l.Errorf("the asker got the lock together with the blocker")
	}
	l.release(first)
	l.wantFree(0)
}

// deaf loses every hint to the waiters.
func deaf(l *lab, k kind) {
	a, _ := l.client()
	b, m := l.client()
	m.deaf.Store(true)
	first := l.enter(k.block, a)
	got := l.queue(context.Background(), k.ask, b, "0", "1")
	l.listening(a, cap(got))
	l.release(first)
	for range cap(got) {
		l.release(l.entered(got, heartbeat+slack))
	}
	l.wantFree(0)
}

// outlives keeps a queue of every kind for longer than a heartbeat.
func outlives(l *lab) {
	a, _ := l.client()
	b, _ := l.client()
	c, _ := l.client()
	names := []string{"0", "1", "2", "3", "4", "5"}
	firsts := make(map[string]*leasehold.Lease)
	queues := make(map[string]chan outcome)
	for _, k := range kinds {
		queues[k.name], firsts[k.name] = make(chan outcome, len(names)), l.on(k.name).enter(k.block, a)
		for i, name := range names {
			l.on(k.name).await(context.Background(), k.ask, []*leasehold.Client{b, c}[i%2], name, queues[k.name])
		}
	}
	time.Sleep(heartbeat + 2*window)
	for _, k := range kinds {
		l.release(firsts[k.name])
		l.on(k.name).inOrder(k, queues[k.name], 2*slack, names...)
	}
}

// overtaking tries again and again around a release, which comes a little later in every
// round.
func overtaking(l *lab, k kind) {
	a, _ := l.client()
	b, _ := l.client()
	c, _ := l.client()
	const rounds, tries = 10, 30
	for i := range rounds {
		first := l.enter(k.block, a)
		got := l.queue(context.Background(), k.ask, b, "waiter")
		tried := make(chan error, tries)
		go func() {
			for range cap(tried) {
				lease, err := k.rival(c, l.key).try(context.Background())
				if err == nil {
					_ = lease.Release() // reported as an overtaking
				}
				tried <- err
			}
		}()
		time.Sleep(time.Duration(i) * lag / 2)
		l.release(first)
		next := l.entered(got, time.Second)
		for range cap(tried) {
			l.wantErr(<-tried, leasehold.ErrHeld)
		}
		l.release(next)
	}
}

// passedOn cancels a waiter about when it is handed the lock: from long before the release
// to when it has the lease.
func passedOn(l *lab, k kind) {
	a, _ := l.client()
	b, _ := l.client()
	c, _ := l.client()
	const rounds = 20
	for i := range rounds {
		first := l.enter(k.block, a)
		got := make(chan outcome, 2)
		ctx, cancel := context.WithCancel(context.Background())
		l.await(ctx, k.ask, b, "cancelled", got)
		l.await(context.Background(), k.rival, c, "next", got)
		time.AfterFunc(rounds/2*lag/2, cancel)
		time.Sleep(time.Duration(i) * lag / 2)
		start := time.Now()
		l.release(first)
		for range 2 {
			o := l.receive(got, 2*time.Second)
			if o.err == nil {
				l.release(o.lease) // also if its context has ended
			}
			if o.name == "next" && (o.err != nil || o.at.Sub(start) > slack) {
				l.Errorf("the next: %v after %v", o.err, o.at.Sub(start))
			}
		}
		cancel()
	}
	l.wantFree(clean)
}

// sameMoment starts thirty waiters at once, and expects them in the order of the store's
// snapshot.
func sameMoment(l *lab, k kind) {
	a, _ := l.client()
	b, _ := l.client()
	first := l.enter(k.block, a)
	got := make(chan outcome, 30)
	for range cap(got) {
		go func() {
			lease, err := k.ask(b, l.key).lock(context.Background())
			got <- outcome{lease: lease, err: err}
		}()
	}
	l.wantQueue(b, cap(got))
	snap := l.picture(a)
	l.release(first)
	var in []*leasehold.Lease
	for range cap(got) {
		in = append(in, l.entered(got, 2*time.Second))
		l.release(in[len(in)-1])
	}
	slices.SortFunc(in, func(a, b *leasehold.Lease) int { return cmp.Compare(a.Token(), b.Token()) })
	for i, w := range snap.Waiters {
		if in[i].ID() != w.ID {
			l.Fatalf("place %d went to another", i+1)
		}
	}
}

// listening waits until n waiters receive hints.
func (l *lab) listening(c *leasehold.Client, n int) {
	l.Helper()
	eventually(l.TB, patience, func() bool {
		snap, err := c.Inspect(context.Background(), l.key)
		// The tickets of waiters that poll live for no longer.
		listen := slices.DeleteFunc(snap.Waiters, func(w driver.Waiter) bool { return w.Remaining <= heartbeat })
		return err == nil && len(listen) == n
	}, func() string { return "not all are queued and listen" })
}

// oneStrategy is W12: goroutines that share a strategy ask at the same intervals as a single
// goroutine, also in their second wait.
func oneStrategy(l *lab, k kind) {
	const goroutines = 64
	// Asked at 0, 5, 55 and 555 ms.
	strategy := leasehold.Backoff{Base: 5 * time.Millisecond, Factor: 10, Attempts: 4}
	const shortest, longest = 555 * time.Millisecond, 655 * time.Millisecond
	a, _ := l.client()
	b, m := l.client(leasehold.WithRetry(strategy))
	first := l.enter(k.block, a)
	for wave := range 2 {
		before := m.asked.Load()
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				_, err := k.ask(b, l.key).lock(context.Background())
				held := new(leasehold.HeldError)
				if !errors.As(err, &held) || held.Waited < shortest || held.Waited > longest {
					l.Errorf("wave %d: %v after %v", wave, err, held.Waited)
				}
			})
		}
		wg.Wait()
		if asked := m.asked.Load() - before; asked != 4*goroutines {
			l.Errorf("wave %d: %d goroutines asked %d times, want 4 times each", wave, goroutines, asked)
		}
	}
	if n := l.queued(a); n > 0 {
		l.Errorf("%d tickets of waiters that retry", n)
	}
	l.release(first)
}

// deadHolder kills the holder while five wait.
func deadHolder(l *lab, k kind) {
	a, m := l.client(leasehold.WithTTL(kept)) // until all wait
	b, _ := l.client()
	dead := l.enter(k.block, a)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := l.queue(ctx, k.ask, b, "0", "1", "2", "3", "4")
	m.die()
	var in []outcome
	for range min(k.together, cap(got)) {
		o := l.receive(got, kept+slack)
		l.atTheEndOf(dead, o)
		in = append(in, o)
	}
	head := slices.MinFunc(in, func(a, b outcome) int { return cmp.Compare(a.lease.Token(), b.lease.Token()) })
	if head.name != "0" {
		l.Errorf("%s entered first", head.name)
	}
	cancel() // all waits end
	for range cap(got) - len(in) {
		l.receive(got, time.Second)
	}
	for _, o := range in {
		l.release(o.lease)
	}
	l.wantFree(clean)
}

// atTheEndOf expects a grant soon after the end of a lease whose holder has died, and not before.
func (l *lab) atTheEndOf(dead *leasehold.Lease, o outcome) {
	l.Helper()
	if o.err != nil {
		l.Fatalf("%s: %v", o.name, o.err)
	}
	// Read now: the answer to a renewal may have come after the death.
	if late := o.at.Sub(dead.Deadline()); late < 0 || late > slack {
		l.Errorf("%s entered %v after the end of the lease", o.name, late)
	}
}

// deadWaiters kills n waiters before a live one, and releases.
func (l *lab) deadWaiters(k kind, n int) {
	a, _ := l.client()
	dead, m := l.client()
	b, live := l.client()
	first := l.enter(k.block, a)
	ctx, cancel := context.WithCancel(context.Background())
	none := make(chan outcome, n)
	for range n {
		go func() {
			lease, err := k.ask(dead, l.key).lock(ctx)
			none <- outcome{lease: lease, err: err}
		}()
	}
	l.listening(a, n)
	m.die()
	got := l.queue(context.Background(), k.rival, b, "live")
	before := live.asked.Load()
	start := time.Now()
	l.release(first)
	// One window until the grant lapses, one until the first live one asks.
	next := l.entered(got, 2*window+2*slack)
	if asked := live.asked.Load() - before; asked > 12 {
		l.Errorf("one waiter asked %d times in %v: a hot loop", asked, time.Since(start))
	}
	l.release(next)
	cancel()
	for range n {
		if o := <-none; o.err == nil {
			l.Error("a dead waiter got the lock")
		}
	}
}
