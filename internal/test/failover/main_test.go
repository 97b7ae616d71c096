// Package failover_test tests locks while servers of Redis die, hang, are replaced and hand over
// their slots: with the library, over both drivers, on servers of its own.
package failover_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/leaktest"
)

func TestMain(m *testing.M) {
	// The tests wait for servers most of the time, so the number of processors does not matter.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leaktest.Main(m,
		// go-redis keeps a coarse clock for as long as the process lives.
		goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/internal/pool.startGlobalTimeCache.func1"),
	)
}

// patience bounds steps that take no time on an idle machine, and the time after which servers
// notice that one of them is gone.
const patience = 30 * time.Second

// hang is the time after which a step that needs no further event counts as hanging. On a busy
// machine servers may need several elections.
const hang = 2 * time.Minute

// rig is a test over one of the client libraries, with names of its own.
type rig struct {
	*testing.T
	library string
	open    func(url string) (driver.Driver, error)
}

// rigs returns a rig for each of the client libraries.
func rigs(t *testing.T) []*rig {
	return []*rig{
		{t, "go-redis", func(url string) (driver.Driver, error) { return redisdriver.Open(url) }},
		{t, "rueidis", func(url string) (driver.Driver, error) { return rueidisdriver.Open(url) }},
	}
}

// acts are the steps of a scenario, one after each event.
type acts []func()

// both plays a scenario over each of the client libraries. It prepares both, and after each event
// it plays the next act of both.
func both(t *testing.T, prepare func(r *rig) acts, events ...func()) {
	t.Helper()
	var plays []acts
	for _, r := range rigs(t) {
		plays = append(plays, prepare(r))
	}
	for i, happen := range events {
		happen()
		for _, play := range plays {
			play[i]()
		}
	}
}

// nothing is an event without effect.
func nothing() {}

func (r *rig) client(url string, opts ...leasehold.Option) *leasehold.Client {
	r.Helper()
	d, err := r.open(url + "&prefix=" + r.library + ":")
	if err != nil {
		r.Fatal(err)
	}
	c, err := leasehold.New(d, opts...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) lock(c *leasehold.Client, key string, opts ...leasehold.Option) *leasehold.Lease {
	r.Helper()
	l, err := c.Mutex(key, append(opts, leasehold.WithMaxWait(patience))...).Lock(context.Background())
	if err != nil {
		r.Fatalf("%s: lock: %v", r.library, err)
	}
	return l
}

func (r *rig) release(l *leasehold.Lease) {
	r.Helper()
	if err := l.Release(); err != nil {
		r.Errorf("%s: release of %q: %v", r.library, l.Key(), err)
	}
}

// eventually polls until ok returns true.
func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("%s: not within %v: %s", r.library, hang, what)
		}
	}
}

// entry is the lock of a waiter, and the time when it got it.
type entry struct {
	lease *leasehold.Lease
	err   error
	at    time.Time
}

// await starts a waiter and returns when the store has queued it behind n waiters.
func (r *rig) await(c *leasehold.Client, key string, n int) <-chan entry {
	r.Helper()
	got := make(chan entry, 1)
	ctx, cancel := context.WithCancel(context.Background())
	r.Cleanup(cancel)
	go func() {
		l, err := c.Mutex(key).Lock(ctx)
		got <- entry{l, err, time.Now()}
	}()
	r.eventually("queued", func() bool {
		snap, err := c.Inspect(context.Background(), key)
		return err == nil && len(snap.Waiters) == n+1
	})
	return got
}

// enters returns the lease of a waiter that is due.
func (r *rig) enters(waiter <-chan entry) entry {
	r.Helper()
	select {
	case e := <-waiter:
		if e.err != nil {
			r.Fatalf("%s: a waiter's lock: %v", r.library, e.err)
		}
		return e
	case <-time.After(hang):
		r.Fatalf("%s: a waiter is still waiting after %v", r.library, hang)
		return entry{}
	}
}

// renewed waits until leases are renewed again.
func (r *rig) renewed(leases ...*leasehold.Lease) {
	r.Helper()
	before := make([]time.Time, len(leases))
	for i, l := range leases {
		before[i] = l.Deadline()
	}
	for i, l := range leases {
		r.eventually("renewed again", func() bool {
			if l.Context().Err() != nil {
				r.Fatalf("%s: lease of %q: %v", r.library, l.Key(), context.Cause(l.Context()))
			}
			return l.State() == leasehold.Held && l.Deadline().After(before[i])
		})
	}
}

// steady returns options of leases and waits that outlive any outage of a test. The
// leases are renewed every 600 ms.
func steady() []leasehold.Option {
	return []leasehold.Option{
		leasehold.WithTTL(5 * time.Minute), leasehold.WithRenewFraction(0.002), leasehold.WithMaxOutage(5 * time.Minute),
	}
}

// handOver is the time in which a waiter gets the lock, with slack: it is woken at once, or asks
// twice a second if it gets no hints.
const handOver = 12 * time.Second

// crowd locks many keys at once, on as many connections, until all could be
// locked and released.
func (r *rig) crowd(c *leasehold.Client) {
	r.Helper()
	r.eventually("many locks at once", func() bool {
		var all sync.WaitGroup
		var failed atomic.Int32
		for i := range 20 {
			all.Go(func() {
				l, err := c.Mutex(fmt.Sprint("crowd", i)).Lock(context.Background())
				if err == nil {
					err = l.Release()
				}
				if err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		return failed.Load() == 0
	})
}

func (r *rig) wantNoLoss(clients ...*leasehold.Client) {
	r.Helper()
	for _, c := range clients {
		if stats := c.Stats(); stats.Lost > 0 {
			r.Errorf("%s: leases were lost: %+v", r.library, stats)
		}
	}
}

// line is a held lock with two waiters behind its holder.
type line struct {
	*rig
	a, b          *leasehold.Client // the holder's and the waiters'
	held          *leasehold.Lease
	first, second <-chan entry
	one           *leasehold.Lease // of the first
}

// queueUp makes a line at a key.
func (r *rig) queueUp(url, key string) *line {
	r.Helper()
	l := &line{rig: r, a: r.client(url, steady()...), b: r.client(url, steady()...)}
	r.crowd(l.a)
	l.held = r.lock(l.a, key)
	l.first = r.await(l.b, key, 0)
	l.second = r.await(l.b, key, 1)
	r.renewed(l.held)
	return l
}

// passToFirst plays the first half of the events after a failover: the lease is still held, and
// the first waiter gets the lock.
func (l *line) passToFirst() {
	l.Helper()
	l.renewed(l.held)
	l.crowd(l.a)
	start := time.Now()
	l.release(l.held)
	one := l.enters(l.first)
	if took := one.at.Sub(start); took > handOver {
		l.Errorf("%s: the first waiter entered after %v", l.library, took)
	}
	if one.lease.Token() <= l.held.Token() {
		l.Errorf("%s: token %d after %d", l.library, one.lease.Token(), l.held.Token())
	}
	l.one = one.lease
}

// passToSecond plays the second half: the second waiter gets the lock.
func (l *line) passToSecond() {
	l.Helper()
	l.renewed(l.one)
	l.release(l.one)
	two := l.enters(l.second)
	l.release(two.lease)
	l.crowd(l.b)
	l.wantNoLoss(l.a, l.b)
}
