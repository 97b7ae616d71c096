package locktest

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

var reentryRows = []row{
	{"K1_FreedAtTheLastReleaseByContext", func(l *lab) {
		c, _ := l.client()
		stranger, _ := l.client()
		ctx, leases := context.Background(), []*leasehold.Lease(nil)
		for range 5 {
			lease, err := c.Mutex(l.key).Lock(ctx)
			if err != nil {
				l.Fatal(err)
			}
			leases, ctx = append(leases, lease), lease.Context()
		}
		l.unwind(stranger, leases)
	}},
	{"K1_FreedAtTheLastReleaseByOwner", func(l *lab) {
		owner := leasehold.WithOwner("worker-7")
		a, _ := l.client(owner, leasehold.WithTTL(life))
		b, _ := l.client(owner, leasehold.WithTTL(2*life))
		stranger, _ := l.client()
		var leases []*leasehold.Lease
		for i := range 5 {
			leases = append(leases, l.lock([]*leasehold.Client{a, b}[i%2]))
		}
		time.Sleep(2 * life) // all of them are renewed
		l.unwind(stranger, leases)
	}},
	{"K2_AfterALossIsALoss", func(l *lab) {
		c, m := l.client(leasehold.WithTTL(life))
		lease := l.lock(c)
		m.die()
		l.ended(lease, 2*life)
		_, err := c.Mutex(l.key).Lock(context.WithoutCancel(lease.Context()))
		l.wantErr(err, leasehold.ErrLost)
	}},
	{"K3_StrangersExcludeEachOther", func(l *lab) {
		c, _ := l.client()
		lease := l.lock(c, leasehold.WithOwner("user-1"))
		for _, owner := range []string{"user-10", "user-", "user"} {
			_, err := c.Mutex(l.key, leasehold.WithOwner(owner)).TryLock(context.Background())
			l.wantErr(err, leasehold.ErrHeld)
		}
		_, err := c.Mutex(l.key).TryLock(context.Background())
		l.wantErr(err, leasehold.ErrHeld)
		l.release(lease)
		again := l.lock(c)
		_, err = c.Mutex(l.key).TryLock(context.Background())
		l.wantErr(err, leasehold.ErrHeld)
		l.release(again)
	}},
}

// unwind releases from the last to the first and checks that a stranger comes
// in only after that.
func (l *lab) unwind(stranger *leasehold.Client, leases []*leasehold.Lease) {
	l.Helper()
	for i, lease := range slices.Backward(leases) {
		if lease.Token() != leases[0].Token() {
			l.Errorf("token %d at depth %d, want %d", lease.Token(), i+1, leases[0].Token())
		}
		_, err := stranger.Mutex(l.key).TryLock(context.Background())
		l.wantErr(err, leasehold.ErrHeld)
		l.release(lease)
	}
	next := l.lock(stranger)
	if next.Token() <= leases[0].Token() {
		l.Errorf("token %d after %d", next.Token(), leases[0].Token())
	}
	l.release(next)
}
