package locktest_test

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// sides are the kinds of locks that can be re-entered.
var sides = []kind{{name: "mutex", ask: mutex}, {name: "writer", ask: writer}, {name: "reader", ask: reader}}

var reentryRows = slices.Concat(
	each("K1_FreedAtTheLastReleaseByContext", sides, func(l *lab, k kind) {
		c, _ := l.client()
		stranger, _ := l.client()
		ctx, leases := context.Background(), []*leasehold.Lease(nil)
		for range 5 {
			lease, err := k.ask(c, l.key).lock(ctx)
			l.must(err)
			leases, ctx = append(leases, lease), lease.Context()
		}
		l.unwind(stranger, leases)
	}),
	each("K1_FreedAtTheLastReleaseByOwner", sides[:2], func(l *lab, k kind) {
		owned := k.ask.with(leasehold.WithReentrantOwner("worker-7"))
		a, _ := l.client(leasehold.WithTTL(kept))
		b, _ := l.client(leasehold.WithTTL(2 * kept))
		stranger, _ := l.client()
		var leases []*leasehold.Lease
		for i := range 5 {
			leases = append(leases, l.enter(owned, []*leasehold.Client{a, b}[i%2]))
		}
		time.Sleep(2 * kept) // all of them are renewed
		l.unwind(stranger, leases)
	}),
	each("K2_AfterALossIsALoss", sides, func(l *lab, k kind) {
		c, m := l.client(leasehold.WithTTL(life))
		lease := l.enter(k.ask, c)
		m.die()
		l.ended(lease, 2*life)
		_, err := k.ask(c, l.key).lock(context.WithoutCancel(lease.Context()))
		l.wantErr(err, leasehold.ErrLost)
	}),
	[]row{strangers},
)

// strangers is K3.
var strangers = row{"K3_StrangersExcludeEachOther", func(l *lab) {
	c, _ := l.client()
	lease := l.lock(c, leasehold.WithReentrantOwner("user-1"))
	for _, owner := range []string{"user-10", "user-", "user"} {
		l.refused(use(mutex).with(leasehold.WithReentrantOwner(owner)), c, leasehold.ErrHeld)
	}
	l.refused(mutex, c, leasehold.ErrHeld)
	l.release(lease)
	again := l.lock(c)
	l.refused(mutex, c, leasehold.ErrHeld)
	l.release(again)
}}

// unwind releases the leases in the opposite order and checks that a stranger gets the lock only
// after that.
func (l *lab) unwind(stranger *leasehold.Client, leases []*leasehold.Lease) {
	l.Helper()
	for i, lease := range slices.Backward(leases) {
		if lease.Token() != leases[0].Token() {
			l.Errorf("token %d at depth %d, want %d", lease.Token(), i+1, leases[0].Token())
		}
		l.refused(mutex, stranger, leasehold.ErrHeld)
		l.release(lease)
	}
	next := l.lock(stranger)
	if next.Token() <= leases[0].Token() {
		l.Errorf("token %d after %d", next.Token(), leases[0].Token())
	}
	l.release(next)
}
