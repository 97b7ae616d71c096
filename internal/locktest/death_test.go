package locktest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// deadHolder has the holder die with five waiting.
func deadHolder(l *lab, k kind) {
	a, m := l.client(leasehold.WithTTL(kept)) // until all wait
	b, _ := l.client()
	dead := l.enter(k.block, a)
	got := make(chan outcome, 5)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range cap(got) {
		l.await(ctx, k.ask, b, fmt.Sprint(i), got)
	}
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

// atTheEndOf expects a grant soon after the end of a lease whose holder has
// died, and not before.
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

// deadWaiters has n waiters die before a live one, and releases.
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
	got := make(chan outcome, 1)
	l.await(context.Background(), k.rival, b, "live", got)
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
