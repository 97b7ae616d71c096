package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// What the package documentation promises of waiting, and what a moment may take at most.
const (
	window    = time.Second            // a lock that was handed to a dead waiter waits for it
	heartbeat = 5 * time.Second        // everyone asks at least so often
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
		// The next look of the rival calls the head, which has its window to come.
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

// wantQueue waits until so many wait.
func (l *lab) wantQueue(c *leasehold.Client, n int) {
	l.Helper()
	var got int
	eventually(l.TB, patience, func() bool { got = l.queued(c); return got == n },
		func() string { return fmt.Sprintf("%d wait, want %d", got, n) })
}

// cancelled has three wait, cancels one, and expects the others in order.
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

// parted has an asker wait, and behind it a rival for whom there is room beside
// the blocker. When the asker leaves, the rival comes in.
func (l *lab) parted(k kind, ask use, within time.Duration, leave func(cancel func(), m *mortal)) {
	a, _ := l.client()
	b, m := l.client()
	c, _ := l.client()
	first := l.enter(k.block, a)
	asker, rival := make(chan outcome, 1), make(chan outcome, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.await(ctx, ask, b, "asker", asker)
	l.await(context.Background(), k.rival, c, "rival", rival)
	l.listening(a, 2)
	leave(cancel, m)
	o := l.receive(rival, within)
	l.must(o.err)
	l.release(o.lease)
	cancel()
	if o := l.receive(asker, time.Second); o.err == nil {
		l.Errorf("the asker got in beside the blocker")
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
	got := make(chan outcome, 2)
	for i := range cap(got) {
		l.await(context.Background(), k.ask, b, fmt.Sprint(i), got)
	}
	l.listening(a, cap(got))
	l.release(first)
	for range cap(got) {
		o := l.receive(got, heartbeat+slack)
		if o.err != nil {
			l.Fatal(o.err)
		}
		l.release(o.lease)
	}
	l.wantFree(0)
}

// outlives keeps a queue of every kind for longer than a heartbeat.
func outlives(l *lab) {
	a, _ := l.client()
	b, _ := l.client()
	c, _ := l.client()
	const n = 6
	var names []string
	firsts := make(map[string]*leasehold.Lease)
	queues := make(map[string]chan outcome)
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	for _, k := range kinds {
		queues[k.name], firsts[k.name] = make(chan outcome, n), l.on(k.name).enter(k.block, a)
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
		got := make(chan outcome, 1)
		l.await(context.Background(), k.ask, b, "waiter", got)
		tried := make(chan error, tries)
		go func() {
			for range cap(tried) {
				lease, err := k.rival(c, l.key).try(context.Background())
				if err == nil {
					_ = lease.Release() // it is told as an overtaking
				}
				tried <- err
			}
		}()
		time.Sleep(time.Duration(i) * lag / 2)
		l.release(first)
		o := l.receive(got, time.Second)
		if o.err != nil {
			l.Fatal(o.err)
		}
		for range cap(tried) {
			l.wantErr(<-tried, leasehold.ErrHeld)
		}
		l.release(o.lease)
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

// sameMoment has thirty arrive together, and expects them in the order in which
// the store shows them.
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
	snap, err := a.Inspect(context.Background(), l.key)
	if err != nil {
		l.Fatal(err)
	}
	l.release(first)
	var in []*leasehold.Lease
	for range cap(got) {
		o := l.receive(got, 2*time.Second)
		if o.err != nil {
			l.Fatal(o.err)
		}
		in = append(in, o.lease)
		l.release(o.lease)
	}
	slices.SortFunc(in, func(a, b *leasehold.Lease) int { return cmp.Compare(a.Token(), b.Token()) })
	for i, w := range snap.Waiters {
		if in[i].ID() != w.ID {
			l.Fatalf("place %d went to another", i+1)
		}
	}
}

// listening waits until n waiters hear hints.
func (l *lab) listening(c *leasehold.Client, n int) {
	l.Helper()
	eventually(l.TB, patience, func() bool { return Listening(c, l.key) == n },
		func() string { return "not all are queued and listen" })
}

// Listening counts the waiters that hear hints: their tickets live for longer
// than those of waiters that poll.
func Listening(c *leasehold.Client, key string) int {
	snap, err := c.Inspect(context.Background(), key)
	if err != nil {
		return 0
	}
	n := 0
	for _, w := range snap.Waiters {
		if w.Remaining > heartbeat {
			n++
		}
	}
	return n
}
