package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
)

// slack is what a busy machine may add to what takes a moment.
const slack = 500 * time.Millisecond

// window is how long a lock that was handed to a dead waiter waits for it.
const window = time.Second

var waitRows = []row{
	{"W2_CancelledHeadDisturbsNobody", func(l *lab) { l.cancelled(0) }},
	{"W2_CancelledMiddleDisturbsNobody", func(l *lab) { l.cancelled(1) }},
	{"W2_CancelledTailDisturbsNobody", func(l *lab) { l.cancelled(2) }},
	{"W4_HeadEntersWhenADeadHoldersLeaseEnds", func(l *lab) {
		a, m := l.client(leasehold.WithTTL(2 * life))
		b, _ := l.client()
		dead := l.lock(a)
		got := make(chan outcome, 5)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i := range 5 {
			l.await(ctx, b, fmt.Sprint(i), got)
		}
		m.die()
		end := dead.Deadline()
		first := l.receive(got, 2*life+slack)
		if first.err != nil || first.name != "0" {
			l.Fatalf("%+v entered first", first)
		}
		if early, late := end.Sub(first.at), first.at.Sub(end); early > 0 || late > slack {
			l.Errorf("entered %v after the end of the lease", late)
		}
		cancel()
		for range 4 {
			l.receive(got, time.Second)
		}
		l.wantFree(time.Second)
	}},
	{"W5_DeadHeadCostsOneWindow", func(l *lab) { l.deadWaiters(1) }},
	{"W6_DeadWaitersCostOneWindow", func(l *lab) { l.deadWaiters(200) }},
	{"W7_OrderOutlivesHeartbeats", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		c, _ := l.client()
		first := l.lock(a)
		got := make(chan outcome, 6)
		for i := range 6 {
			l.await(context.Background(), []*leasehold.Client{b, c}[i%2], fmt.Sprint(i), got)
		}
		time.Sleep(7 * time.Second) // longer than a heartbeat
		l.release(first)
		for i := range 6 {
			o := l.receive(got, time.Second)
			if o.err != nil || o.name != fmt.Sprint(i) {
				l.Fatalf("place %d went to %s, %v", i, o.name, o.err)
			}
			l.release(o.lease)
		}
	}},
	{"W8_TryNeverOvertakesALiveWaiter", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		c, _ := l.client()
		for range 20 {
			first := l.lock(a)
			got := make(chan outcome, 1)
			l.await(context.Background(), b, "b", got)
			tried := make(chan error, 100)
			go func() {
				for range cap(tried) {
					lease, err := c.Mutex(l.key).TryLock(context.Background())
					if err == nil {
						_ = lease.Release()
					}
					tried <- err
				}
			}()
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
	}},
	{"W10_GrantToOneThatHasJustTimedOutPassesOn", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		c, _ := l.client()
		for i := range 20 {
			first := l.lock(a)
			got := make(chan outcome, 2)
			ctx, cancel := context.WithCancel(context.Background())
			l.await(ctx, b, "b", got)
			l.await(context.Background(), c, "c", got)
			// At the same instant, as nearly as can be.
			go cancel()
			time.Sleep(time.Duration(i) * 50 * time.Microsecond)
			start := time.Now()
			l.release(first)
			for range 2 {
				o := l.receive(got, 2*time.Second)
				if o.err == nil {
					l.releaseAny(o.lease)
				}
				if o.name == "c" && (o.err != nil || o.at.Sub(start) > slack) {
					l.Errorf("c: %v after %v", o.err, o.at.Sub(start))
				}
			}
			cancel()
		}
		l.wantFree(time.Second)
	}},
	{"W11_ArrivalsOfOneMomentAreServedInTheStoresOrder", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		first := l.lock(a)
		const n = 50
		got := make(chan outcome, n)
		for range n {
			go func() {
				lease, err := b.Mutex(l.key).Lock(context.Background())
				got <- outcome{lease: lease, err: err}
			}()
		}
		eventually(l.T, 10*time.Second, func() bool { return l.queued(b) == n }, func() string { return "not all are queued" })
		snap, err := a.Inspect(context.Background(), l.key)
		if err != nil {
			l.Fatal(err)
		}
		l.release(first)
		for i, w := range snap.Waiters {
			o := l.receive(got, 2*time.Second)
			if o.err != nil || o.lease.ID() != w.ID {
				l.Fatalf("place %d went to another: %v", i+1, o.err)
			}
			l.release(o.lease)
		}
	}},
	{"P5_WaitEndsUnservedInTime", func(l *lab) {
		a, _ := l.client(leasehold.WithOwner("holder"))
		b, _ := l.client()
		lease := l.lock(a)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := b.Mutex(l.key).Lock(ctx)
		l.wantErr(err, leasehold.ErrHeld, context.DeadlineExceeded)
		held := new(leasehold.HeldError)
		if !errors.As(err, &held) || held.Owner != "holder" || held.Position != 1 || held.Waited < 300*time.Millisecond {
			l.Errorf("%v: %+v", err, held)
		}
		if got := time.Since(start); got > 300*time.Millisecond+slack {
			l.Errorf("took %v", got)
		}
		eventually(l.T, time.Second, func() bool { return l.queued(b) == 0 }, func() string { return "the ticket stayed" })
		l.release(lease)
	}},
}

// releaseAny releases a lease of which the context may have ended meanwhile.
func (l *lab) releaseAny(lease *leasehold.Lease) {
	l.Helper()
	if err := lease.Release(); err != nil {
		l.Errorf("release: %v", err)
	}
}

// cancelled has three wait, cancels one, and expects the others in order.
func (l *lab) cancelled(place int) {
	a, _ := l.client()
	b, _ := l.client()
	first := l.lock(a)
	got := make(chan outcome, 3)
	ctx, cancel := context.WithCancel(context.Background())
	var want []string
	for i := range 3 {
		c := context.Background()
		if i == place {
			c = ctx
		} else {
			want = append(want, fmt.Sprint(i))
		}
		l.await(c, b, fmt.Sprint(i), got)
	}
	cancel()
	l.wantErr(l.receive(got, time.Second).err, context.Canceled, leasehold.ErrHeld)
	eventually(l.T, time.Second, func() bool { return l.queued(b) == 2 }, func() string { return "the ticket stayed" })
	for start := time.Now(); len(want) > 0; want = want[1:] {
		l.release(first)
		o := l.receive(got, slack)
		if o.err != nil || o.name != want[0] {
			l.Fatalf("%s, %v entered, want %s", o.name, o.err, want[0])
		}
		if o.at.Sub(start) > 2*slack {
			l.Errorf("%s was delayed by %v", o.name, o.at.Sub(start))
		}
		first = o.lease
	}
	l.release(first)
	l.wantFree(0)
}

// deadWaiters has n waiters die before a live one, and releases.
func (l *lab) deadWaiters(n int) {
	a, _ := l.client()
	dead, m := l.client()
	b, live := l.client()
	first := l.lock(a)
	ctx, cancel := context.WithCancel(context.Background())
	none := make(chan outcome, n)
	for range n {
		go func() {
			lease, err := dead.Mutex(l.key).Lock(ctx)
			none <- outcome{lease: lease, err: err}
		}()
	}
	eventually(l.T, 10*time.Second, func() bool { return Listening(a, l.key) == n }, func() string { return "not all are queued and listen" })
	m.die()
	got := make(chan outcome, 1)
	l.await(context.Background(), b, "b", got)
	before := live.asked.Load()
	start := time.Now()
	l.release(first)
	// One window until the grant lapses, one until the first live one asks.
	o := l.receive(got, 2*window+2*slack)
	if o.err != nil {
		l.Fatal(o.err)
	}
	if asked := live.asked.Load() - before; asked > 12 {
		l.Errorf("one waiter asked %d times in %v: a hot loop", asked, o.at.Sub(start))
	}
	l.release(o.lease)
	cancel()
	for range n {
		if o := <-none; o.err == nil {
			l.Error("a dead waiter got the lock")
		}
	}
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
		if w.Remaining > 5*time.Second {
			n++
		}
	}
	return n
}
