package locktest_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// sharedRows are the K cases of readers and writers.
var sharedRows = slices.Concat(
	starvationRows,
	downgradeRows,
	[]row{
		{"K5_DeadReaderCostsAWriterOneLease", func(l *lab) {
			a, m := l.client(leasehold.WithTTL(kept))
			b, _ := l.client(leasehold.WithTTL(kept))
			c, _ := l.client()
			dead, live := l.enter(reader, a), l.enter(reader, b)
			got := l.queue(context.Background(), writer, c, "writer")
			m.die()
			l.release(live)
			o := l.receive(got, kept+slack)
			l.atTheEndOf(dead, o)
			l.release(o.lease)
		}},
		{"K6_ReadersEndByThemselves", func(l *lab) {
			a, _ := l.client(leasehold.WithTTL(life), leasehold.WithoutRenewal())
			b, _ := l.client(leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
			short, long := l.enter(reader, a), l.enter(reader, b)
			got := l.queue(context.Background(), writer, b, "writer")
			l.ended(short, life+slack)
			l.wantErr(short.Release(), leasehold.ErrLost)
			if long.State() != leasehold.Held || long.Remaining() < 50*time.Second || len(got) > 0 {
				l.Fatalf("the long one is %v for %v, and the writer has an outcome: %t", long.State(), long.Remaining(), len(got) > 0)
			}
			l.release(long)
			l.release(l.entered(got, slack))
		}},
	},
)

// starvationRows are K4: waiters are served although the lock changes hands for ever.
var starvationRows = []row{
	{"K4_WriterIsServedWhileReadersChurn/FIFO", func(l *lab) { l.churn(writer, reader) }},
	{"K4_ReaderIsServedWhileWritersChurn/FIFO", func(l *lab) { l.churn(reader, writer) }},
	{"K4_WriterIsServedWhileReadersChurn/writers first", func(l *lab) {
		first := leasehold.WithPolicy(leasehold.WritersFirst)
		l.churn(use(writer).with(first), use(reader).with(first))
	}},
	{"K4_ReaderIsServedWhileWritersChurn/readers first", func(l *lab) {
		first := leasehold.WithPolicy(leasehold.ReadersFirst)
		l.churn(use(reader).with(first), use(writer).with(first))
	}},
	{"K4_ManyPlacesAreServedWhileFewChurn", func(l *lab) { l.churn(places(3, 3), places(1, 3)) }},
	{"K4_MutexIsServedWhilePlacesChurn", func(l *lab) { l.churn(mutex, places(1, 3)) }},
	{"K4_PlaceIsServedWhileMutexesChurn", func(l *lab) { l.churn(places(1, 3), mutex) }},
}

// churn runs eight holders of two clients in turns, so that the lock is always held, and one
// asker that asks five times.
func (l *lab) churn(asks, churns use) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 2 {
		c, _ := l.client()
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					lease, err := churns(c, l.key).lock(ctx)
					if err != nil {
						if ctx.Err() == nil {
							l.Errorf("churn: %v", err)
						}
						return
					}
					time.Sleep(3 * time.Millisecond)
					_ = lease.Release() // ctx may have ended it before
				}
			})
		}
	}
	c, _ := l.client()
	for i := range 5 {
		lease, err := asks(c, l.key, leasehold.WithMaxWait(5*time.Second)).lock(context.Background())
		if err != nil {
			l.Errorf("time %d: %v", i+1, err)
			break
		}
		l.release(lease)
	}
	stop()
	wg.Wait()
	l.wantFree(clean)
}

// downgradeRows are K7: with two readers, a writer and another reader in the
// queue, a writer becomes a reader.
var downgradeRows = []row{
	{"K7_DowngradeLetsReadersInAndNoWriter/FIFO", func(l *lab) { l.downgrade(leasehold.FIFO, "r1", "r2") }},
	{"K7_DowngradeLetsReadersInAndNoWriter/writers first", func(l *lab) { l.downgrade(leasehold.WritersFirst) }},
	{"K7_DowngradeLetsReadersInAndNoWriter/readers first", func(l *lab) {
		l.downgrade(leasehold.ReadersFirst, "r1", "r2", "r3")
	}},
}

// downgrade expects the named readers to enter at once.
func (l *lab) downgrade(policy leasehold.Policy, enter ...string) {
	opts := leasehold.WithPolicy(policy)
	a, _ := l.client(opts)
	b, _ := l.client(opts)
	c, _ := l.client(opts)
	lease := l.enter(writer, a)
	token := lease.Token()
	got := make(chan outcome, 4)
	for _, name := range []string{"r1", "r2", "w", "r3"} {
		side := use(reader)
		if name == "w" {
			side = writer
		}
		l.await(context.Background(), side, b, name, got)
	}
	l.listening(c, cap(got))
	l.must(lease.Downgrade(context.Background()))
	var in []*leasehold.Lease
	for range enter {
		o := l.receive(got, window/2) // less than until they look by themselves
		if o.err != nil || !slices.Contains(enter, o.name) {
			l.Fatalf("%s entered, %v; want %q", o.name, o.err, enter)
		}
		in = append(in, o.lease)
	}
	l.refused(writer, c, leasehold.ErrHeld)
	l.refused(mutex, c, leasehold.ErrHeld)
	rest := cap(got) - len(enter)
	l.wantQueue(c, rest)
	if lease.Token() != token || lease.State() != leasehold.Held {
		l.Errorf("token %d became %d, the lease is %v", token, lease.Token(), lease.State())
	}
	l.wantErr(lease.Downgrade(context.Background()), leasehold.ErrMismatch)
	l.releaseAll(append(in, lease))
	for range rest {
		l.release(l.entered(got, slack))
	}
	l.wantFree(0)
}
