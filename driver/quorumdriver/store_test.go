package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

func TestNew_RefusesWhatIsNoQuorum(t *testing.T) {
	a, b := memdriver.New(), memdriver.New()
	var none *memdriver.Driver
	for name, c := range map[string]struct {
		nodes []driver.Driver
		opts  []quorumdriver.Option
		want  error
		says  string
	}{
		"no nodes":         {nil, nil, driver.ErrInvalid, "0 nodes"},
		"too many":         {make([]driver.Driver, quorumdriver.MaxNodes+1), nil, driver.ErrInvalid, "32 nodes"},
		"nil":              {[]driver.Driver{a, nil}, nil, driver.ErrInvalid, "node 2: no driver"},
		"typed nil":        {[]driver.Driver{a, none, b}, nil, driver.ErrInvalid, "node 2: no driver"},
		"the same twice":   {[]driver.Driver{a, b, a}, nil, driver.ErrInvalid, "node 3: the same driver as node 1"},
		"no tokens":        {[]driver.Driver{a, driver.FromBasic(threeVerbs{})}, nil, errors.ErrUnsupported, "node 2: the store has no fencing tokens"},
		"short timeout":    {[]driver.Driver{a}, []quorumdriver.Option{quorumdriver.WithTimeout(time.Millisecond)}, driver.ErrInvalid, "1ms"},
		"long timeout":     {[]driver.Driver{a}, []quorumdriver.Option{quorumdriver.WithTimeout(time.Hour)}, driver.ErrInvalid, "1h"},
		"short leases":     {[]driver.Driver{a}, []quorumdriver.Option{quorumdriver.WithMaxTTL(0)}, driver.ErrInvalid, "longest TTL 0s"},
		"negative skew":    {[]driver.Driver{a}, []quorumdriver.Option{quorumdriver.WithMaxSkew(-1)}, driver.ErrInvalid, "clock skew -1ns"},
		"too few names":    {[]driver.Driver{a, b}, []quorumdriver.Option{quorumdriver.WithNames("a")}, driver.ErrInvalid, "1 names for 2 nodes"},
		"one name for two": {[]driver.Driver{a, b}, []quorumdriver.Option{quorumdriver.WithNames("a", "a")}, driver.ErrInvalid, `nodes 1 and 2 are both "a"`},
	} {
		s, err := quorumdriver.New(c.nodes, c.opts...)
		if s != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
	if _, err := a.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: ttl}); err != nil {
		t.Errorf("a node of a quorum that was not made: %v", err)
	}
}

// threeVerbs is a store of three verbs.
type threeVerbs struct{ d *memdriver.Driver }

func (s threeVerbs) SetNX(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	reply, err := s.d.Acquire(ctx, driver.Request{Key: key, ID: id, TTL: ttl})
	return reply.State == driver.Granted, err
}

func (s threeVerbs) Renew(ctx context.Context, key, id string, ttl time.Duration) (ok bool, err error) {
	s.d.Renew(ctx, []driver.Ref{{Key: key, ID: id, TTL: ttl}}, func(_ int, reply driver.Reply, e error) { ok, err = reply.State == driver.Granted, e })
	return ok, err
}

func (s threeVerbs) Delete(ctx context.Context, key, id string) (bool, error) {
	reply, err := s.d.Release(ctx, driver.Ref{Key: key, ID: id})
	return reply.State == driver.Released, err
}

// Nodes that keep no mark are trusted.
func TestNodes_OfThreeVerbsServeWithoutFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		for range 3 {
			nodes = append(nodes, driver.FromBasic(threeVerbs{memdriver.New()}))
		}
		a := open(t, nodes, quorumdriver.WithoutFencing())
		a.acquire("a", driver.Granted)
		a.acquire("b", driver.Busy)
		a.renewed("a", driver.Granted)
		a.release("a", driver.Released)
		a.acquire("b", driver.Granted)
		if err := driver.Supports(a.s, driver.Request{Mode: driver.Shared}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "node 1") {
			t.Errorf("readers: %v", err)
		}
	})
}

// lockLater waits for the lock, releases it at once, and sends the time of the grant.
func lockLater(t *testing.T, c *leasehold.Client) <-chan time.Time {
	got := make(chan time.Time)
	go func() {
		lease, err := c.Mutex("k").Lock(context.Background())
		at := time.Now()
		if err == nil {
			err = lease.Release()
		}
		if err != nil {
			t.Error(err)
		}
		got <- at
	}()
	return got
}

func TestWaiters_AreServedSoonAfterARelease(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, all []*server, a asker) {
		holder, waiter := clientOf(t, a), clientOf(t, quorumOf(t, all))
		for range 20 {
			first := locked(t, holder.Mutex("k"))
			got := lockLater(t, waiter)
			time.Sleep(time.Second + 7*time.Millisecond)
			released := time.Now()
			noError(t, first.Release())
			// The waiter is woken by the nodes, and not by its next request.
			if gap := (<-got).Sub(released); gap > 50*time.Millisecond {
				t.Errorf("waited %v for a free lock", gap)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestWaiters_AskFromTimeToTimeWhenNoHintComes(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		var deaf []driver.Driver
		for _, s := range all {
			deaf = append(deaf, struct{ driver.Driver }{s.client()})
		}
		a.acquire("a", driver.Granted, lasting(time.Minute))
		got := lockLater(t, clientOf(t, open(t, deaf)))
		time.Sleep(10 * time.Second)
		released := time.Now()
		a.release("a", driver.Released)
		if gap := (<-got).Sub(released); gap > 500*time.Millisecond {
			t.Errorf("waited %v for a free lock", gap)
		}
	})
}

// onBreak calls f for each hint of a broken lease.
func (a asker) onBreak(f func(driver.Hint)) driver.Subscription {
	a.Helper()
	sub, err := a.s.Watch(func(h driver.Hint) {
		if h.Kind == driver.HintBroken {
			f(h)
		}
	})
	noError(a, err)
	a.Cleanup(func() { _ = sub.Close() })
	return sub
}

// hinted is a node with hints from the test.
type hinted struct {
	*memdriver.Driver
	hear *func(driver.Hint)
}

func (h hinted) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	*h.hear = f
	return h.Driver.Watch(f)
}

// TestHints_NoneIsPassedOnAfterTheEnd: a hint of a node may be under way while a subscription is closed.
func TestHints_NoneIsPassedOnAfterTheEnd(t *testing.T) {
	hear := make([]func(driver.Hint), 3)
	var nodes []driver.Driver
	for i := range hear {
		nodes = append(nodes, hinted{memdriver.New(), &hear[i]})
	}
	sub, err := open(t, nodes).s.Watch(func(h driver.Hint) {
		if h.Kind == driver.HintAsk {
			t.Errorf("%+v after the end", h)
		}
	})
	noError(t, err)
	noError(t, sub.Close())
	for _, f := range hear {
		f(driver.Hint{Kind: driver.HintAsk, ID: "a"})
	}
}

func TestHints_ABreakIsToldIfAMajoritySaysSo(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		broken := make(chan driver.Hint, 8)
		a.onBreak(func(h driver.Hint) { broken <- h })
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[0].breaks(t, "k", "a", "one node only")
		time.Sleep(2 * quorumdriver.DefaultTimeout)
		if len(broken) > 0 {
			t.Errorf("one node of three: %+v", <-broken)
		}
		a.renewed("a", driver.Granted)
		for _, s := range all[1:] {
			s.breaks(t, "k", "a", "for a reason")
			time.Sleep(300 * time.Millisecond) // the hints may be that far apart
		}
		synctest.Wait()
		// The first node's hint was too long ago to count.
		if len(broken) != 1 {
			t.Fatalf("two nodes of three: %d hints", len(broken))
		}
		if got := <-broken; got.Reason != "for a reason" || got.Key != "k" {
			t.Errorf("two nodes of three: %+v", got)
		}
		if reply := a.renewed("a", driver.Gone); !reply.Broken {
			t.Errorf("%+v", reply)
		}
	})
}

func TestHints_OfNodesOnTheirOwnAreForgotten(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		sub := a.onBreak(func(h driver.Hint) { t.Errorf("a lease of two locks, each broken at one node: %+v", h) })
		for i := range 100 {
			// The same id in two locks, each broken at another node.
			for n, key := range []string{"k", "other"} {
				req := driver.Request{Key: key, ID: fmt.Sprint("a", i), TTL: ttl}
				_, err := all[n].store.Acquire(t.Context(), req)
				noError(t, err)
				all[n].breaks(t, key, req.ID, "why")
			}
		}
		synctest.Wait()
		if n := quorumdriver.Pending(sub); n != 200 {
			t.Errorf("%d hints are kept, want 200", n)
		}
		time.Sleep(quorumdriver.DefaultTimeout)
		synctest.Wait()
		if n := quorumdriver.Pending(sub); n != 0 {
			t.Errorf("%d hints are kept after the time in which other nodes could confirm them", n)
		}
	})
}

// inspected returns the holders by the quorum.
func (a asker) inspected() []driver.Holder {
	a.Helper()
	snap, err := a.s.Inspect(a.Context(), "k")
	noError(a, err)
	return snap.Holders
}

func TestInspect_ShowsWhatAMajorityHolds(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		for n := len(all); n > 0; n-- {
			got := a.inspected()
			if isHeld := len(got) == 1 && got[0].ID == "a"; isHeld != (n >= 2) || !isHeld && len(got) > 0 {
				t.Errorf("with a at %d nodes of three: held by %+v", n, got)
			}
			all[n-1].free(t, "a")
		}
		all[0].kill()
		all[1].kill()
		if _, err := a.s.Inspect(t.Context(), "k"); !errors.Is(err, driver.ErrNoQuorum) {
			t.Errorf("without a majority: %v", err)
		}
	})
}

func TestInspect_AHolderStaysAsLongAsWithAMajority(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		for i, ttl := range []time.Duration{10 * time.Second, 2 * time.Hour, time.Hour} {
			all[i].hold(t, "a", ttl)
		}
		if got := a.inspected(); len(got) != 1 || got[0].Remaining != time.Hour {
			t.Errorf("%+v; want a for an hour", got)
		}
	})
}

// A node that was away at a downgrade still has the writer, but a majority has the reader. A
// client that took the lease over as a writer would not be alone.
func TestInspect_HR_A3_AWriterIsOneAtAMajority(t *testing.T) {
	for lagging := range 3 {
		inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
			for i, s := range all {
				req := driver.Request{Key: "k", ID: "a", Mode: driver.Shared, TTL: time.Hour - time.Duration(i)*time.Minute}
				if i == lagging {
					req.Mode = driver.Exclusive
				}
				_, err := s.store.Acquire(t.Context(), req)
				noError(t, err)
			}
			if got := a.inspected(); len(got) != 1 || got[0].Mode != driver.Shared {
				t.Errorf("node %d lags: %+v; want a reader", lagging, got)
			}
		})
	}
}

func TestList_FindsWhatAMajorityHoldsWithoutAskingAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stores []*memdriver.Driver
		var nodes []driver.Driver
		for range 5 {
			stores = append(stores, memdriver.New())
			nodes = append(nodes, stores[len(stores)-1])
		}
		s := open(t, nodes, quorumdriver.WithoutGuard()).s
		const n = 300 // more than a page
		for i := range n {
			if reply, err := s.Acquire(t.Context(), driver.Request{Key: fmt.Sprint("k", i), ID: "a", TTL: time.Hour / 8}); err != nil {
				t.Fatalf("%+v, %v", reply, err)
			}
		}
		_, err := stores[0].Acquire(t.Context(), driver.Request{Key: "k of one", ID: "a", TTL: ttl})
		noError(t, err)
		stores[0].Close()
		stores[1].Close()
		seen := make(map[string]bool)
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			keys, next, err := s.List(t.Context(), "k", cursor)
			noError(t, err)
			for _, key := range keys {
				seen[key] = true
			}
			cursor = next
		}
		if len(seen) != n {
			t.Errorf("%d keys, want %d", len(seen), n)
		}
		for _, cursor := range []string{"nonsense", "0 0", "-1 0 k", "0 -1 k", "0x0 0 k", "0  1 k", "0 1x k", " 0 1 k", "+0 0 k"} {
			if _, _, err := s.List(t.Context(), "", cursor); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q, a cursor that List has not returned: %v", cursor, err)
			}
		}
		stores[2].Close()
		if _, _, err := s.List(t.Context(), "k", ""); !errors.Is(err, driver.ErrNoQuorum) {
			t.Errorf("without a majority: %v", err)
		}
	})
}

func TestClose_WaitsForWhatIsReleasedInTheBackground(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		all[2].delay(200 * time.Millisecond)
		a.acquire("a", driver.Granted)
		synctest.Wait() // it is on its way to the slow node, too
		a.release("a", driver.Released)
		start := time.Now()
		noError(t, a.s.Close())
		if took := time.Since(start); took < 400*time.Millisecond || took > 2*quorumdriver.DefaultTimeout {
			t.Errorf("took %v", took)
		}
		wantInside(t, all[2:])
		if _, err := a.ask(t.Context(), "b"); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := a.s.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	})
}

func TestClose_IsBoundedWhenANodeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		s, err := quorumdriver.New([]driver.Driver{all[0].client(), all[1].client(), new(ignorant).on(all[2])})
		noError(t, err)
		all[2].stop()
		asker{t, s}.acquire("a", driver.Granted)
		start := time.Now()
		if err := s.Close(); err == nil {
			t.Error("closed, but a call has not ended")
		}
		if took := time.Since(start); took > 4*quorumdriver.DefaultTimeout {
			t.Errorf("took %v", took)
		}
		all[2].cont()
	})
}

func TestStore_RemembersNothingOfWhatIsOver(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, _ []*server, a asker) {
		for i := range 1000 {
			id := fmt.Sprint("a", i)
			a.acquire(id, driver.Granted)
			a.acquire("refused", driver.Busy)
			a.release(id, driver.Released)
			synctest.Wait()
		}
		if n := a.s.Remembered(); n != 0 {
			t.Errorf("%d leases are remembered", n)
		}
		// No call reports the end of a dead holder's lease.
		for i := range 1000 {
			a.acquire("a", driver.Granted, func(r *driver.Request) { r.Key, r.TTL = fmt.Sprint(i), time.Second })
			time.Sleep(time.Second)
		}
		if n := a.s.Remembered(); n > 300 { // they are kept for a minute
			t.Errorf("%d leases are remembered", n)
		}
	})
}

func TestErrors_AnEndedContextIsNoMissingMajority(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		for _, s := range all {
			s.stop()
			defer s.cont()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := a.ask(ctx, "a")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNoQuorum) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, want the context's error", err)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}
