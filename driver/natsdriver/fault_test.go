package natsdriver

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/play"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

func TestServer_KilledAndStartedAgainItKeepsLocks(t *testing.T) {
	s := start(t)
	d := warm(t, openURL(t, s.url()+"?create=true"))
	held := acquire(t, d, mutex("k", "a"), driver.Granted)
	s.Kill()
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
		s.Kill()
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
	noError(t, s.Stop())
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
	s.Cont()
	warm(t, d)
	if !holds(t, d, "k", "a") {
		t.Error("the lease is gone")
	}
}

func TestOpen_AServerThatComesLaterIsFound(t *testing.T) {
	s := start(t)
	s.Kill()
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
	s.Kill()
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

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote cuts connections in the middle of many updates.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	url, bucket := one()
	warm(t, openURL(t, url+"/"+bucket+"?create=true"))
	var proxies []*tcpproxy.Proxy
	var tables []roomdriver.Table
	for range 4 {
		p := tcpproxy.Start(t, shared().addr)
		table := openURL(t, through(p)+"/"+bucket).table
		proxies, tables = append(proxies, p), append(tables, table, table)
	}
	c := play.StartChain(t, tables...)
	for cuts := range 20 {
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
				t.Fatal("no update was made")
			}
		}
	}
	c.Await(200, 10)
	c.Judge()
}

// awaitOtherLeader waits until the other servers follow another leader than s.
func (c cluster) awaitOtherLeader(t *testing.T, s *server) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(c), func(one *server) bool { return one == s })
	eventually(t, func() bool { l := others.leader(t, "leasehold"); return l != nil && l != s })
}

// TestCluster_LosesNoLockInFaults has a leader that steps down, is killed and is stopped.
func TestCluster_LosesNoLockInFaults(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "elections take half a minute")
	c := startCluster(t)
	url := c.url() + "?create=true&replicas=3"
	warm(t, openURL(t, url))
	var stores []driver.Driver
	var tables []roomdriver.Table
	for i := range 8 {
		stores = append(stores, openURL(t, url))
		if i%2 == 0 {
			tables = append(tables, warm(t, openURL(t, url)).table)
		}
	}
	play.Faults(t, 10*time.Second, stores, tables, 6,
		play.Fault{Name: "step-down", Do: func(*play.Locks) {
			nc := connect(t, c.url())
			defer nc.Close()
			_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_leasehold", nil, 5*time.Second)
			warm(t, openURL(t, url))
		}},
		play.Fault{Name: "kill", Do: func(*play.Locks) {
			s := c.awaitLeader(t, "leasehold")
			s.Kill()
			c.awaitOtherLeader(t, s)
			s.run()
			warm(t, openURL(t, url))
		}},
		play.Fault{Name: "stop", Do: func(locks *play.Locks) {
			s := c.awaitLeader(t, "leasehold")
			noError(t, s.Stop())
			defer s.Cont()
			c.awaitOtherLeader(t, s)
			locks.Await(20) // with the new leader
		}},
	)
}

func TestClose_LeavesNoGoroutineAndTheUsersConnection(t *testing.T) {
	url, bucket := one()
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
