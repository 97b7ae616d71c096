package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

func request(id string, ttl time.Duration) driver.Request {
	return driver.Request{Key: "k", ID: id, Owner: id, Since: time.Now(), Policy: driver.Barging, TTL: ttl, ConfirmWindow: time.Second}
}

// acquire asks until the store answers.
func acquire(t testing.TB, d driver.Driver, req driver.Request) (reply driver.Reply) {
	t.Helper()
	eventually(t, func() (ok bool) {
		var err error
		reply, err = d.Acquire(t.Context(), req)
		return err == nil
	})
	return reply
}

// write returns an f of Update.
func write(record string) func([]byte, time.Time) ([]byte, error) {
	return func([]byte, time.Time) ([]byte, error) { return []byte(record), nil }
}

func expect(t *testing.T, d *Driver, key, want string) {
	t.Helper()
	if record, _, err := d.table.Read(t.Context(), key); string(record) != want || err != nil {
		t.Errorf("the record is %q, %v; want %q", record, err, want)
	}
}

// through returns drivers of the test's own store, with a proxy and without it.
func through(t *testing.T, opts ...Option) (*tcpproxy.Proxy, *Driver, *Driver) {
	t.Helper()
	p := tcpproxy.Start(t, sharedServer())
	d := openURL(t, strings.Replace(shared(t), sharedServer(), p.Addr(), 1), opts...)
	expect(t, d, "k", "") // connected
	return p, d, openURL(t, shared(t))
}

// TestUpdate_ACutConnectionIsRepaired cuts the connection before the commit, and between the commit and
// its answer.
func TestUpdate_ACutConnectionIsRepaired(t *testing.T) {
	t.Parallel()
	p, d, other := through(t)
	for i, plan := range []func(string) *tcpproxy.Cut{p.CutBefore, p.CutAfter} {
		key := fmt.Sprint(i)
		noError(t, other.table.Update(t.Context(), key, write("before")))
		cut := plan("written")
		noError(t, d.table.Update(t.Context(), key, write("written")))
		<-cut.Fired()
		expect(t, other, key, "written")
		client := dial(t, shared(t))
		defer client.Close()
		got, err := client.Get(t.Context(), d.table.prefix+records+key)
		if err != nil || got.Kvs[0].Version != 2 {
			t.Errorf("not written once: %v, %v", got, err)
		}
	}
}

// TestUpdate_AnOvertakenWriteIsUnknown loses an answer, and replaces the record before the request is
// sent again.
func TestUpdate_AnOvertakenWriteIsUnknown(t *testing.T) {
	t.Parallel()
	p, d, other := through(t)
	noError(t, other.table.Update(t.Context(), "k", write("before")))
	first, second := p.CutAfter("written"), p.Hold("written")
	done := make(chan error)
	go func() { done <- d.table.Update(t.Context(), "k", write("written")) }()
	<-first.Fired()
	<-second.Fired()
	noError(t, other.table.Update(t.Context(), "k", write("other")))
	second.Let()
	if err := <-done; err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a write that was overtaken: %v", err)
	}
	expect(t, other, "k", "other")
}

// TestUpdate_AMissingRecordIsWrittenOnce loses the answer of a request that expects no record, and
// removes that record: the request would write it again.
func TestUpdate_AMissingRecordIsWrittenOnce(t *testing.T) {
	t.Parallel()
	p, d, other := through(t)
	cut := p.CutAfter("written")
	done := make(chan error)
	go func() { done <- d.table.Update(t.Context(), "k", write("written")) }()
	<-cut.Fired()
	noError(t, other.table.Update(t.Context(), "k", func([]byte, time.Time) ([]byte, error) { return nil, nil }))
	if err := <-done; err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a write without an answer: %v", err)
	}
	expect(t, other, "k", "")
}

// TestUpdate_ALateRequestReplacesNothing holds a request until the record has been replaced.
func TestUpdate_ALateRequestReplacesNothing(t *testing.T) {
	t.Parallel()
	p, d, other := through(t)
	cut := p.Hold("written")
	if err := d.table.Update(t.Context(), "k", write("written")); err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a write without an answer: %v", err)
	}
	<-cut.Fired()
	noError(t, other.table.Update(t.Context(), "k", write("other")))
	cut.Let()
	expect(t, d, "k", "other") // the same connection
}

// TestUpdate_AnEndedContextIsReportedTruly ends the context before each step of a call.
func TestUpdate_AnEndedContextIsReportedTruly(t *testing.T) {
	t.Parallel()
	p, d, other := through(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := d.table.Update(ctx, "k", func([]byte, time.Time) ([]byte, error) {
		cancel()
		return []byte("written"), nil
	})
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("before the write: %v", err)
	}
	if err := d.table.Update(ctx, "k", write("written")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("before the read: %v", err)
	}
	expect(t, other, "k", "")
	for text, unchanged := range map[string]bool{d.table.prefix + records + "k": true, "written": false} {
		cut := p.Hold(text)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-cut.Fired()
			cancel()
		}()
		if err := d.table.Update(ctx, "k", write("written")); err == nil || errors.Is(err, driver.ErrUnavailable) != unchanged {
			t.Errorf("during %q: %v", text, err)
		}
		cut.Let()
	}
}

// TestFault_AStoppedServerIsUnavailable reads the error of calls that a server does not answer.
func TestFault_AStoppedServerIsUnavailable(t *testing.T) {
	live.Test(t)
	c := startCluster(t, 1)
	d := openURL(t, c.url(), WithTimeout(500*time.Millisecond))
	acquire(t, d, request("a", time.Minute))
	noError(t, c[0].process.Stop())
	for _, limit := range []time.Duration{50 * time.Millisecond, time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		start := time.Now()
		if _, err := d.Acquire(ctx, request("b", time.Minute)); !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(start); took > min(limit, 500*time.Millisecond)+time.Second {
			live.Late(t, "%v", took)
		}
		cancel()
	}
	c[0].process.Cont()
	if reply := acquire(t, d, request("b", time.Minute)); reply.State == driver.Granted {
		t.Error("two holders")
	}
}

func TestFault_ARefusedConnectionIsNamed(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	_, err := openURL(t, "etcd://"+address).Acquire(t.Context(), request("a", time.Minute))
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), address+": connect: connection refused") {
		t.Errorf("%v", err)
	}
}

// TestFault_AStoppedLeaderCostsSeconds measures the longest call while the leader of three is stopped.
func TestFault_AStoppedLeaderCostsSeconds(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "it measures for 15 seconds")
	c := startCluster(t, 3)
	d := openURL(t, c.url())
	acquire(t, d, request("a", time.Minute))
	client := dial(t, c.url())
	defer client.Close()
	i, _ := c.leader(t, client)
	noError(t, c[i].process.Stop())
	stopped := time.Now()
	answered := stopped
	var longest time.Duration
	for time.Since(stopped) < 15*time.Second {
		d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, err error) {
			if now := time.Now(); err == nil {
				longest, answered = max(longest, now.Sub(answered)), now
			}
		})
	}
	t.Logf("a renewal took up to %v", longest)
	if longest > 6*time.Second {
		live.Late(t, "a renewal took up to %v", longest)
	}
	c[i].process.Cont()
}

// TestFault_AServerThatForgetsItsDataServesAgain also looks at tokens.
func TestFault_AServerThatForgetsItsDataServesAgain(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	d := openURL(t, c.url())
	first := acquire(t, d, request("a", time.Minute))
	c[0].process.Kill()
	if _, err := d.Acquire(t.Context(), request("b", time.Minute)); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	c[0].forget(t)
	if second := acquire(t, d, request("b", time.Minute)); second.State != driver.Granted || second.Token <= first.Token {
		t.Errorf("%+v after %+v", second, first)
	}
}

// TestFault_ALoginEndsSoon has a server that accepts connections and never answers.
func TestFault_ALoginEndsSoon(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer l.Close()
	d := openURL(t, "etcd://u:p@"+l.Addr().String(), WithTimeout(8*time.Second))
	var all sync.WaitGroup
	for range 5 { // one after the other would take ten seconds
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, _, err := d.table.Read(ctx, "k")
			if took := time.Since(start); !errors.Is(err, driver.ErrUnavailable) || took > 6*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
	all.Wait()
}

func TestFault_TooLargeARecordIsDefinite(t *testing.T) {
	c := startCluster(t, 1, "--max-request-bytes", "4096")
	d := openURL(t, c.url())
	if err := d.table.Update(t.Context(), "k", write(strings.Repeat("x", 6000))); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	expect(t, d, "k", "")
}

// TestFault_AFullStoreIsReportedTruly fills the space of the store by several writers: etcd makes the
// write that passes the quota, and returns the error of the later ones that it refuses.
func TestFault_AFullStoreIsReportedTruly(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, "--quota-backend-bytes", "4000000")
	var all sync.WaitGroup
	for i := range 20 {
		d := openURL(t, c.url())
		key := fmt.Sprint(i)
		expect(t, d, key, "")
		all.Go(func() {
			last := ""
			var err error
			for n := 0; err == nil; n++ {
				next := fmt.Sprint(n) + strings.Repeat("x", 50<<10)
				if err = d.table.Update(t.Context(), key, write(next)); err == nil {
					last = next
				}
			}
			record, _, readErr := d.table.Read(t.Context(), key)
			if !errors.Is(err, driver.ErrPermanent) || readErr != nil || string(record) != last {
				t.Errorf("%v; has the record changed: %v, %v", err, string(record) != last, readErr)
			}
		})
	}
	all.Wait()
	report, err := openURL(t, c.url()).Check(t.Context())
	if !strings.Contains(fmt.Sprint(report.Findings), "NOSPACE") || err != nil {
		t.Error(report.Findings, err)
	}
}

// TestListen_ACompactionLosesNoLaterMessage compacts the revisions that a watch has not received.
func TestListen_ACompactionLosesNoLaterMessage(t *testing.T) {
	t.Parallel()
	p, d, sender := through(t)
	got := make(chan string, 1000)
	sub, err := d.table.Listen(func(body string) { got <- body })
	noError(t, err)
	defer sub.Close()
	<-got // created
	<-got
	send := func(body string) {
		noError(t, sender.table.Notify(t.Context(), []roomdriver.Message{{Address: sub.Address(), Body: body}}))
	}
	p.Mute()
	p.CutAll()
	send("a")
	send("b")
	client := dial(t, shared(t))
	defer client.Close()
	now, err := client.Get(t.Context(), "x")
	noError(t, err)
	_, err = client.Compact(t.Context(), now.Header.Revision)
	noError(t, err)
	p.Unmute()
	for deadline := time.After(time.Minute); ; {
		select {
		case body := <-got:
			if body == "c" {
				return
			}
		case <-time.After(200 * time.Millisecond):
			send("c")
		case <-deadline:
			t.Fatal("no message arrived")
		}
	}
}

func TestCheck_FindsNothingUnsafe(t *testing.T) {
	report, err := openURL(t, shared(t)).Check(t.Context())
	noError(t, err)
	for _, f := range report.Findings {
		if f.Severity != driver.Good && f.Check != "members" {
			t.Errorf("%+v", f)
		}
	}
	if len(report.Findings) < 5 {
		t.Errorf("%+v", report.Findings)
	}
}

// leader returns the index of the leader, and the ids of all members, when all follow it.
func (c cluster) leader(t *testing.T, client *clientv3.Client) (index int, ids []uint64) {
	t.Helper()
	eventually(t, func() bool {
		leaders := make(map[uint64]bool)
		ids = nil
		for i, m := range c {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := client.Status(ctx, m.client)
			cancel()
			if err != nil {
				return false
			}
			ids = append(ids, s.Header.MemberId)
			if leaders[s.Leader] = true; s.Leader == s.Header.MemberId {
				index = i
			}
		}
		return len(leaders) == 1 && !leaders[0]
	})
	return index, ids
}

func (c cluster) moveLeader(t *testing.T) {
	t.Helper()
	client := dial(t, c.url())
	defer client.Close()
	i, ids := c.leader(t, client)
	at := dial(t, "etcd://"+c[i].client)
	defer at.Close()
	_, err := at.MoveLeader(t.Context(), ids[(i+1)%len(ids)])
	noError(t, err)
}
