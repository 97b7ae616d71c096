package natsdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

func TestServer_KilledAndStartedAgainItKeepsLocks(t *testing.T) {
	s := start(t)
	d := warm(t, openURL(t, s.url()+"?create=true"))
	held := acquire(t, d, mutex("k", "a"), driver.Granted)
	s.kill()
	if _, err := d.Acquire(t.Context(), mutex("k", "b")); err == nil {
		t.Error("a server that is killed answers")
	}
	s.run()
	warm(t, d)
	if reply := acquire(t, d, mutex("k", "a"), driver.Granted); reply.Token != held.Token {
		t.Errorf("token %d, and then %d", held.Token, reply.Token)
	}
	acquire(t, d, mutex("k", "b"), driver.Busy)
}

func TestServer_ThatForgetsItsDataGivesGreaterTokens(t *testing.T) {
	s := start(t)
	d := warm(t, openURL(t, s.url()+"?create=true"))
	last := int64(0)
	for range 3 {
		reply := acquire(t, d, mutex("k", "a"), driver.Granted)
		if reply.Token <= last {
			t.Errorf("token %d follows %d", reply.Token, last)
		}
		last = reply.Token
		s.kill()
		s.lose()
		s.run()
		warm(t, d)
	}
}

// A server that is stopped keeps connections. Calls end by their time limits, and the next
// succeeds after it goes on.
func TestServer_StoppedItHoldsUpNoCall(t *testing.T) {
	live.Test(t)
	s := start(t)
	d := warm(t, openURL(t, s.url()+"?create=true&timeout=300ms"))
	acquire(t, d, mutex("k", "a"), driver.Granted)
	s.stop()
	for _, limit := range []time.Duration{50 * time.Millisecond, time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		begin := time.Now()
		_, err := d.Acquire(ctx, mutex("other", "a"))
		if took := time.Since(begin); took > min(limit, 300*time.Millisecond)+time.Second {
			live.Late(t, "the call took %v", took)
		}
		if err == nil {
			t.Error("a server that is stopped answers")
		}
		cancel()
	}
	s.cont()
	warm(t, d)
	if !holds(t, d, "k", "a") {
		t.Error("the lease is gone")
	}
}

func TestOpen_AServerThatComesLaterIsFound(t *testing.T) {
	s := start(t)
	s.kill()
	d := openURL(t, s.url()+"?create=true")
	hints := make(chan driver.Hint, 100)
	sub, err := d.Watch(func(h driver.Hint) { hints <- h })
	noError(t, err)
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%v", err)
	}
	s.run()
	warm(t, d)
	eventually(t, func() bool { return sub.Address() != "" })
	s.kill()
	for len(hints) > 0 {
		<-hints
	}
	s.run()
	select {
	case h := <-hints: // after the connection was lost
		if h.Kind != driver.HintResync {
			t.Errorf("%+v", h)
		}
	case <-time.After(time.Minute):
		t.Error("a lost connection is not reported")
	}
	noError(t, sub.Close())
}

// change is an update of a key: the record that it read and the record that it wrote.
type change struct {
	key, before, after string
	sure               bool
}

// chain records updates.
type chain struct {
	mu      sync.Mutex
	changes []change
	sure    int
	unsure  int
	failed  int
}

// work inserts, replaces and removes at random.
func (c *chain) work(ctx context.Context, d *Driver, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		one := change{key: fmt.Sprint("chain", rand.IntN(3))}
		err := d.table.Update(ctx, one.key, func(record []byte, now time.Time) ([]byte, error) {
			one.before, one.after = "", ""
			if record != nil {
				one.before = string(record[9:])
			}
			if rand.IntN(4) == 0 {
				return nil, nil
			}
			one.after = fmt.Sprint(name, ".", n)
			head := binary.BigEndian.AppendUint64([]byte{1}, uint64(now.Add(time.Hour).UnixMilli())) //nolint:gosec // after 1970
			return append(head, one.after...), nil
		})
		one.sure = err == nil
		if err != nil {
			time.Sleep(time.Millisecond) // it is not connected again yet
		}
		c.mu.Lock()
		switch {
		case errors.Is(err, driver.ErrUnavailable):
			c.failed++
		case one.before != one.after:
			c.changes = append(c.changes, one)
			if c.sure++; err != nil {
				c.sure, c.unsure = c.sure-1, c.unsure+1
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
	t.Logf("%d certain updates, %d of unknown outcome, %d that failed", c.sure, c.unsure, c.failed)
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

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote cuts connections in the middle of many updates.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	url, bucket := one(t)
	warm(t, openURL(t, url+"/"+bucket+"?create=true"))
	c := new(chain)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var proxies []*tcpproxy.Proxy
	for i := range 4 {
		p := tcpproxy.Start(t, shared.addr)
		proxies = append(proxies, p)
		d := openURL(t, through(p)+"/"+bucket)
		for j := range 2 {
			all.Go(func() { c.work(ctx, d, fmt.Sprint(i, ".", j)) })
		}
	}
	for cuts, begin := 0, time.Now(); ; cuts++ {
		if p := proxies[rand.IntN(len(proxies))]; cuts%3 == 2 {
			p.CutAll()
		} else {
			cut := p.CutBefore(write)
			if cuts%3 == 1 {
				cut = p.CutAnswer(write, ack)
			}
			select {
			case <-cut.Fired():
			case <-time.After(time.Minute):
				t.Error("no update was made")
			}
		}
		c.mu.Lock()
		enough := cuts >= 20 && c.sure >= 200 && c.unsure >= 10 && c.failed > 0
		c.mu.Unlock()
		if time.Since(begin) > time.Minute {
			t.Error("too little happened")
		}
		if enough || t.Failed() {
			break
		}
	}
	cancel()
	all.Wait()
	c.check(t)
}

// fault disturbs a cluster, and returns when it is over.
type fault struct {
	name string
	do   func(t *testing.T, c cluster)
}

var faults = []fault{
	{"step-down", func(t *testing.T, c cluster) {
		nc := connect(t, c.url())
		defer nc.Close()
		_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_leasehold", nil, 5*time.Second)
	}},
	{"kill", func(t *testing.T, c cluster) {
		s := c.awaitLeader(t, "leasehold")
		s.kill()
		c.awaitOtherLeader(t, s)
		s.run()
	}},
	{"stop", func(t *testing.T, c cluster) { // until there is another leader
		s := c.awaitLeader(t, "leasehold")
		s.stop()
		defer s.cont()
		c.awaitOtherLeader(t, s)
		time.Sleep(time.Second) // clients work with the new leader, while the old one stands still
	}},
}

// awaitOtherLeader waits until the other servers follow another leader than s.
func (c cluster) awaitOtherLeader(t *testing.T, s *server) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(c), func(one *server) bool { return one == s })
	eventually(t, func() bool { l := others.leader(t, "leasehold"); return l != nil && l != s })
}

// TestCluster_LosesNoLockInFaults contends for locks, and for records, while the leader steps
// down, is killed and is stopped.
func TestCluster_LosesNoLockInFaults(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "elections take half a minute")
	c := startCluster(t)
	url := c.url() + "?create=true&replicas=3"
	warm(t, openURL(t, url))
	ctx, cancel := context.WithCancel(t.Context())
	h := new(play)
	records := new(chain)
	var all sync.WaitGroup
	for i := range 8 {
		d, err := Open(url)
		noError(t, err)
		client, err := leasehold.New(d, leasehold.WithTTL(ttl), leasehold.WithMaxOutage(time.Minute))
		noError(t, err)
		all.Go(func() { h.work(ctx, client, fmt.Sprint("p", i)) })
		if i%2 == 0 {
			all.Go(func() { records.work(ctx, warm(t, openURL(t, url)), fmt.Sprint(i)) })
		}
	}
	for range 6 {
		for _, f := range faults {
			since := now()
			f.do(t, c)
			warm(t, openURL(t, url))
			h.Add(history.Record{At: now() + int64(ttl), Since: since, What: history.Fault, Note: f.name})
			h.await(t, 20)
		}
	}
	cancel()
	all.Wait()
	verdict := checker.Judge(history.Rules{Tokens: true}, h.records)
	t.Log(verdict)
	if len(verdict.Violations) > 0 {
		t.Error("a promise is broken")
	}
	records.check(t)
}

const ttl = 10 * time.Second

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

func TestClose_LeavesNoGoroutineAndTheUsersConnection(t *testing.T) {
	url, bucket := one(t)
	nc := connect(t, url)
	own := func() *Driver { return openURL(t, url+"/"+bucket+"?create=true") }
	before := 0
	for i := range 20 { // the first starts goroutines of the process
		users, err := New(nc, WithBucket(bucket), WithCreate(1))
		noError(t, err)
		for _, d := range []*Driver{own(), users} {
			sub, err := d.Watch(func(driver.Hint) {})
			noError(t, err)
			warm(t, d)
			eventually(t, func() bool { return sub.Address() != "" })
			noError(t, d.Close())
			if _, err := d.Acquire(t.Context(), mutex("k", "a")); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		noError(t, own().Close()) // it was not used
		if i == 0 {
			before = runtime.NumGoroutine()
		}
	}
	eventually(t, func() bool { return runtime.NumGoroutine() <= before })
	if nc.Status() != nats.CONNECTED || nc.NumSubscriptions() > 1 { // its inbox
		t.Errorf("%v, %d subscriptions", nc.Status(), nc.NumSubscriptions())
	}
}
