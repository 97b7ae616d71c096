package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// change is an update of a key: the record that it read and the record that it wrote. A missing record is "".
type change struct {
	key, before, after string
	sure               bool
}

// chain records updates.
type chain struct {
	mu      sync.Mutex
	changes []change
	unsure  int
	failed  int
}

// work replaces and removes records at random.
func (c *chain) work(ctx context.Context, d *Driver, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		one := change{key: fmt.Sprint("chain", rand.IntN(3))}
		err := d.table.Update(ctx, one.key, func(record []byte, _ time.Time) ([]byte, error) {
			if one.before, one.after = string(record), ""; rand.IntN(4) == 0 {
				return nil, nil
			}
			one.after = fmt.Sprint(name, ".", n)
			return []byte(one.after), nil
		})
		one.sure = err == nil
		c.mu.Lock()
		switch {
		case errors.Is(err, driver.ErrUnavailable):
			c.failed++
		case one.before != one.after:
			c.changes = append(c.changes, one)
			if err != nil {
				c.unsure++
			}
		}
		c.mu.Unlock()
	}
}

// check reports updates that cannot have happened one after the other. Each record has at most
// one certain successor, and each record that was read was written by an update that may have written it.
func (c *chain) check(t *testing.T) {
	t.Helper()
	written, read := make(map[[2]string]bool), make(map[[2]string]change)
	for _, one := range c.changes {
		written[[2]string{one.key, one.after}] = true
	}
	for _, one := range c.changes {
		at := [2]string{one.key, one.before}
		if one.before == "" {
			continue
		}
		if !written[at] {
			t.Errorf("%+v has read a record that was certainly not written", one)
		}
		if other, ok := read[at]; ok && one.sure {
			t.Errorf("both %+v and %+v follow %q", other, one, one.before)
		}
		if one.sure {
			read[at] = one
		}
	}
	t.Logf("%d updates, %d of them of unknown outcome, and %d that failed", len(c.changes), c.unsure, c.failed)
}

func TestUpdate_TheChainFindsALostUpdate(t *testing.T) {
	for name, changes := range map[string][]change{
		"lost":    {{"a", "", "1", true}, {"a", "1", "2", true}, {"a", "1", "3", true}},
		"refused": {{"a", "", "1", true}, {"a", "2", "3", true}},
	} {
		inner := new(testing.T)
		(&chain{changes: changes}).check(inner)
		if !inner.Failed() {
			t.Errorf("%s: not found", name)
		}
	}
}

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote cuts connections before and after writes.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := new(chain)
	var all sync.WaitGroup
	var proxies []*tcpproxy.Proxy
	for i := range 4 {
		p, d, _ := through(t)
		proxies = append(proxies, p)
		for j := range 2 {
			all.Go(func() { c.work(ctx, d, fmt.Sprint(i, ".", j)) })
		}
	}
	for i := range 20 {
		switch p, text := proxies[i%4], fmt.Sprint(i%4, "."); i % 3 {
		case 0:
			<-p.CutBefore(text).Fired()
		case 1:
			<-p.CutAfter(text).Fired()
		default:
			p.CutAll()
		}
	}
	cancel()
	all.Wait()
	c.check(t)
}

const ttl = 4 * time.Second

var started = time.Now()

func now() int64 { return int64(time.Since(started)) + 1 }

// play records a history.
type play struct {
	mu      sync.Mutex
	records []history.Record
	grants  int
}

// Add implements [history.Sink].
func (p *play) Add(r history.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, r)
	if r.What == history.Got {
		p.grants++
	}
}

// await waits for more grants.
func (p *play) await(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.grants
	}
	enough := count() + more
	eventually(t, func() bool { return count() >= enough })
}

// work locks and releases until ctx ends.
func (p *play) work(ctx context.Context, client *leasehold.Client, proc string) {
	defer client.Close()
	for n := 0; ctx.Err() == nil; n++ {
		key, attempt := fmt.Sprint("k", n%2), fmt.Sprint(proc, ".", n)
		note := func(what string, r history.Record) {
			r.At, r.Proc, r.What, r.Attempt, r.Key = now(), proc, what, attempt, key
			p.Add(r)
		}
		note(history.Ask, history.Record{Mode: history.Exclusive, TTL: int64(ttl), Wait: int64(time.Minute), Undo: int64(ttl)})
		lease, err := client.Mutex(key, leasehold.WithName(attempt)).Lock(ctx)
		if err != nil {
			outcome := history.Unavailable
			if ctx.Err() != nil {
				outcome = history.Cancelled
			} else if errors.Is(err, leasehold.ErrUnknown) {
				outcome = history.Unknown
			}
			note(history.None, history.Record{Outcome: outcome, Note: err.Error()})
			continue
		}
		note(history.Got, history.Record{Lease: lease.ID(), Token: lease.Token(), Live: lease.Context().Err() == nil})
		for range rand.IntN(4) {
			time.Sleep(time.Millisecond) // the work under the lock
			at := now()
			if lease.Context().Err() == nil {
				p.Add(history.Record{At: at, Proc: proc, What: history.Live, Attempt: attempt})
			}
		}
		note(history.Release, history.Record{})
		outcome := history.OK
		if err := lease.Release(); err != nil {
			outcome = history.Unknown
		}
		note(history.Released, history.Record{Outcome: outcome})
	}
	p.Add(history.Record{At: now(), Proc: proc, What: history.Bye})
}

// fault disturbs a cluster, and returns when it is over.
type fault struct {
	name string
	do   func(t *testing.T, c cluster, h *play)
}

var faults = []fault{
	{"another leader", func(t *testing.T, c cluster, _ *play) { c.moveLeader(t) }},
	{"kill of the leader", func(t *testing.T, c cluster, h *play) {
		m := c.leads(t)
		m.kill()
		h.await(t, 20)
		m.start(t)
	}},
	{"stop of the leader", func(t *testing.T, c cluster, h *play) { // clients work with a new one meanwhile
		m := c.leads(t)
		m.signal(t, syscall.SIGSTOP)
		defer m.signal(t, syscall.SIGCONT)
		h.await(t, 20)
	}},
}

// leads returns the leader.
func (c cluster) leads(t *testing.T) *member {
	t.Helper()
	client := dial(t, c.url())
	defer client.Close()
	i, _ := c.leader(t, client)
	return c[i]
}

// TestCluster_LosesNoLockInFaults contends for locks, and for records, in a cluster whose leader
// fails.
func TestCluster_LosesNoLockInFaults(t *testing.T) {
	t.Parallel()
	disturb(t, 1, faults[:2])
}

func TestCluster_LosesNoLockInManyFaults(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "elections take minutes")
	disturb(t, 8, faults)
}

func disturb(t *testing.T, rounds int, faults []fault) {
	c := startCluster(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	h, records := new(play), new(chain)
	var all sync.WaitGroup
	for i := range 8 {
		d, err := Open(c.url())
		noError(t, err)
		client, err := leasehold.New(d, leasehold.WithTTL(ttl), leasehold.WithMaxOutage(time.Minute))
		noError(t, err)
		all.Go(func() { h.work(ctx, client, fmt.Sprint("p", i)) })
		if i%4 == 0 {
			other := openURL(t, c.url())
			all.Go(func() { records.work(ctx, other, fmt.Sprint(i)) })
		}
	}
	h.await(t, 20)
	for range rounds {
		for _, f := range faults {
			since := now()
			f.do(t, c, h)
			h.Add(history.Record{At: now() + int64(ttl), Since: since, What: history.Fault, Note: f.name})
			h.await(t, 20)
		}
	}
	cancel()
	all.Wait()
	verdict := checker.Judge(history.Rules{Tokens: true}, h.records)
	t.Log(verdict)
	for _, v := range verdict.Violations {
		t.Error(v)
	}
	records.check(t)
}
