package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/respproxy"
	"github.com/leasehold-go/leasehold/redisdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
)

// What real servers and networks do to a lock on Redis.

// rig is a server, what stands before it, and clients of one of the libraries.
type rig struct {
	*testing.T
	server *redistest.Server
	proxy  *respproxy.Proxy
	open   func(tb testing.TB, addr string) driver.Driver
}

// tryTimeout bounds one try of a driver, so that a lost reply costs no more.
const tryTimeout = 300 * time.Millisecond

// both runs a case on both client libraries, side by side.
// The cases have time limits of a second and less, so they come one after the
// other, before those that keep the machine busy.
func both(t *testing.T, run func(r *rig)) {
	t.Helper()
	for name, open := range map[string]func(testing.TB, string) driver.Driver{
		"go-redis": func(tb testing.TB, addr string) driver.Driver {
			client := redis.NewClient(&redis.Options{Addr: addr})
			tb.Cleanup(func() { _ = client.Close() })
			d, err := redisdriver.New(client, redisdriver.WithTimeout(tryTimeout))
			if err != nil {
				tb.Fatal(err)
			}
			return d
		},
		"rueidis": func(tb testing.TB, addr string) driver.Driver {
			d, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}}, rueidisdriver.WithTimeout(tryTimeout))
			if err != nil {
				tb.Fatal(err)
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			run(&rig{T: t, server: server, proxy: respproxy.Start(t, server.Addr()), open: open})
		})
	}
}

// client returns a client that is connected through the proxy, or directly.
func (r *rig) client(addr string, opts ...leasehold.Option) *leasehold.Client {
	r.Helper()
	c, err := leasehold.New(r.open(r.T, addr), opts...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	// The scripts are known from here on.
	l := r.lock(c, "warm-up")
	r.release(l)
	return c
}

func (r *rig) lock(c *leasehold.Client, key string) *leasehold.Lease {
	r.Helper()
	l, err := c.Mutex(key).TryLock(context.Background())
	if err != nil {
		r.Fatalf("lock: %v", err)
	}
	return l
}

func (r *rig) release(l *leasehold.Lease) {
	r.Helper()
	if err := l.Release(); err != nil {
		r.Errorf("release: %v", err)
	}
}

func (r *rig) admin(args ...any) {
	r.Helper()
	if err := r.server.Client().Do(context.Background(), args...).Err(); err != nil {
		r.Fatal(err)
	}
}

// wantFree checks on the server that nobody has the key or waits for it.
func (r *rig) wantFree(key string, within time.Duration) {
	r.Helper()
	c := r.client(r.server.Addr())
	var snap driver.Snapshot
	answered := time.Now().Add(20 * time.Second) // a look that is not answered says nothing
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		var err error
		snap, err = c.Inspect(context.Background(), key)
		if err == nil && len(snap.Holders) == 0 && len(snap.Waiters) == 0 {
			return
		}
		if err == nil && time.Now().After(end) || time.Now().After(answered) {
			r.Fatalf("left behind: %+v, %v", snap, err)
		}
	}
}

func TestRedis_L2_LostAcquireReplyGivesOneHold(t *testing.T) {
	both(t, func(r *rig) {
		c := r.client(r.proxy.Addr())
		dropped := r.proxy.Add(respproxy.DropReply, 1, respproxy.Mentions("orders"))
		l := r.lock(c, "orders")
		dropped.WaitFired(t, 1)
		snap, err := c.Inspect(context.Background(), "orders")
		if err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != l.ID() || snap.Token != l.Token() {
			r.Errorf("token %d; store: %+v, %v", l.Token(), snap, err)
		}
		r.release(l)
		r.wantFree("orders", 0)
	})
}

func TestRedis_L3_LostReleaseReplyIsRepeatedAndTheNextHolderSurvives(t *testing.T) {
	both(t, func(r *rig) {
		a, b := r.client(r.proxy.Addr()), r.client(r.server.Addr())
		first := r.lock(a, "k")
		got := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := b.Mutex("k").Lock(context.Background())
			if err != nil {
				r.Error(err)
			}
			got <- l
		}()
		waitFor(r.T, func() bool {
			snap, err := b.Inspect(context.Background(), "k")
			return err == nil && len(snap.Waiters) == 1
		})
		dropped := r.proxy.Add(respproxy.DropReply, 1, respproxy.Mentions(first.ID()))
		r.release(first)
		dropped.WaitFired(r.T, 1)
		r.release(<-got)
	})
}

func TestRedis_L4_CancelledAcquireIsUndone(t *testing.T) {
	both(t, func(r *rig) {
		c := r.client(r.proxy.Addr())
		dropped := r.proxy.Add(respproxy.DropReply, 1, respproxy.Mentions("orders"))
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-dropped.Fired()
			cancel()
		}()
		_, err := c.Mutex("orders").Lock(ctx)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, leasehold.ErrUnknown) {
			r.Errorf("%v", err)
		}
		r.wantFree("orders", 20*time.Second)
	})
}

func TestRedis_L4_HeldBackAcquireCannotLockLater(t *testing.T) {
	both(t, func(r *rig) {
		c := r.client(r.proxy.Addr())
		held := r.proxy.Add(respproxy.Hold, 1, respproxy.Mentions("orders"))
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-held.Fired()
			cancel()
		}()
		if _, err := c.Mutex("orders").Lock(ctx); !errors.Is(err, context.Canceled) {
			r.Errorf("%v", err)
		}
		// Closing waits for the undoing; then the network delivers the request.
		if err := c.Close(); err != nil {
			r.Error(err)
		}
		held.Release()
		r.wantFree("orders", 0)
		time.Sleep(100 * time.Millisecond)
		r.wantFree("orders", 0)
	})
}

// renewed is the time to live of leases that are renewed and then end. They are renewed as
// often as if it were half a second, so that no pause of a busy machine ends them before.
const renewed = 8 * time.Second

func renewedOften() []leasehold.Option {
	return []leasehold.Option{leasehold.WithTTL(renewed), leasehold.WithRenewFraction(0.02)}
}

func TestRedis_L5_SilentServerLosesByTheLocalDeadline(t *testing.T) {
	for name, silence := range map[string]func(*rig){
		"SIGSTOP":      func(r *rig) { r.server.Stop(); r.Cleanup(r.server.Cont) },
		"CLIENT PAUSE": func(r *rig) { r.admin("CLIENT", "PAUSE", (3 * renewed).Milliseconds(), "ALL") },
		"black hole":   func(r *rig) { r.proxy.Mute() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(r *rig) {
				c := r.client(r.proxy.Addr(), append(renewedOften(), leasehold.WithReleaseTimeout(time.Second))...)
				l := r.lock(c, "k")
				first := l.Deadline()
				waitFor(r.T, func() bool { return l.Deadline().After(first) }) // it is renewed
				silence(r)
				stop, machine := make(chan struct{}), make(chan time.Duration)
				go func() { machine <- sluggishness(stop) }()
				select {
				case <-l.Context().Done():
				case <-time.After(2 * renewed):
					r.Error("no loss")
				}
				late := time.Since(l.Deadline())
				close(stop)
				// As late as any timer here, and a moment.
				if most := 2*<-machine + 200*time.Millisecond; late > most || late < 0 {
					r.Errorf("noticed %v after the deadline, want %v at most", late, most)
				}
				if !errors.Is(context.Cause(l.Context()), leasehold.ErrLost) {
					r.Error(context.Cause(l.Context()))
				}
			})
		})
	}
}

// sluggishness returns by how much a timer of this process was late at most, until
// it is told to stop.
func sluggishness(stop <-chan struct{}) (most time.Duration) {
	const beat = 10 * time.Millisecond
	for due := time.Now().Add(beat); ; due = time.Now().Add(beat) {
		select {
		case <-time.After(time.Until(due)):
			most = max(most, time.Since(due))
		case <-stop:
			return max(most, time.Since(due))
		}
	}
}

func TestRedis_L6_BlipLosesNothing(t *testing.T) {
	both(t, func(r *rig) {
		// Much longer than a blip, and than what a busy machine adds to one; renewed as
		// often as if it lived for a second.
		c := r.client(r.proxy.Addr(), leasehold.WithTTL(30*time.Second), leasehold.WithRenewFraction(0.01))
		l := r.lock(c, "k")
		for i := range 8 {
			time.Sleep(300 * time.Millisecond)
			if i%2 == 0 {
				r.server.Stop()
			} else {
				r.proxy.CutAll()
				r.proxy.Refuse(true)
			}
			time.Sleep(200 * time.Millisecond)
			r.server.Cont()
			r.proxy.Refuse(false)
		}
		waitFor(r.T, func() bool { return l.State() != leasehold.Unconfirmed })
		if l.State() != leasehold.Held {
			r.Fatal(context.Cause(l.Context()))
		}
		r.release(l)
		if s := c.Stats(); s.Lost > 0 {
			r.Errorf("%+v", s)
		}
	})
}

// TestRedis_StallDuringAnAcquireIsAnsweredSoonAfter has stalls that are shorter
// than a try, where the reply is awaited, and longer, where it is asked again.
// Whatever else this machine does delays an answer now and then, so the best of a
// few counts.
func TestRedis_StallDuringAnAcquireIsAnsweredSoonAfter(t *testing.T) {
	both(t, func(r *rig) {
		c := r.client(r.server.Addr())
		for _, row := range []struct{ stall, bound time.Duration }{
			{50 * time.Millisecond, 100 * time.Millisecond},
			{200 * time.Millisecond, 100 * time.Millisecond},
			{700 * time.Millisecond, time.Second},
			{1200 * time.Millisecond, time.Second},
		} {
			got := best(10, row.bound, func() time.Duration { return r.answeredAfter(c, row.stall) })
			if got > row.bound {
				r.Errorf("answered %v after a stall of %v, at best", got, row.stall)
			}
		}
	})
}

// answeredAfter tells how long after a stall a lock is got that was asked for
// during it.
func (r *rig) answeredAfter(c *leasehold.Client, stall time.Duration) time.Duration {
	r.server.Stop()
	got := make(chan time.Time, 1)
	go func() {
		l, err := c.Mutex(stall.String()).Lock(context.Background())
		at := time.Now()
		if err == nil {
			err = l.Release()
		}
		if err != nil {
			r.Error(err)
		}
		got <- at
	}()
	time.Sleep(stall)
	woken := time.Now()
	r.server.Cont()
	return (<-got).Sub(woken)
}

func TestRedis_W3_WaitsEndWithoutAnyWakeUp(t *testing.T) {
	both(t, func(r *rig) {
		a, b := r.client(r.server.Addr()), r.client(r.proxy.Addr())
		r.proxy.DropPubSub(true)
		wait := func() time.Duration {
			first := r.lock(a, "k")
			got := make(chan error, 1)
			go func() {
				l, err := b.Mutex("k").Lock(context.Background())
				if err == nil {
					err = l.Release()
				}
				got <- err
			}()
			waitFor(r.T, func() bool { return Listening(a, "k") == 1 })
			r.admin("CLIENT", "KILL", "TYPE", "pubsub")
			r.release(first)
			start := time.Now()
			if err := <-got; err != nil {
				r.Error(err)
			}
			return time.Since(start)
		}
		if got := best(3, 2*time.Second, wait); got > 2*time.Second {
			r.Errorf("without wake-ups: waited %v", got)
		}
		// Subscribed again, a wake-up is heard at once.
		r.proxy.DropPubSub(false)
		waitFor(r.T, func() bool { return len(r.server.Client().PubSubChannels(context.Background(), "*").Val()) > 0 })
		hears := func() time.Duration {
			first := r.lock(a, "k")
			got := make(chan time.Time, 1)
			go func() {
				l, err := b.Mutex("k").Lock(context.Background())
				at := time.Now()
				if err != nil {
					r.Error(err)
				} else {
					r.release(l)
				}
				got <- at // the test ends with it
			}()
			waitFor(r.T, func() bool { return Listening(a, "k") == 1 })
			stop, machine := make(chan struct{}), make(chan time.Duration)
			go func() { machine <- sluggishness(stop) }()
			start := time.Now()
			r.release(first)
			waited := (<-got).Sub(start)
			close(stop)
			return waited - 2*<-machine // of what is as late as any timer here
		}
		// By looking it would take the most of a second.
		if got := best(10, 300*time.Millisecond, hears); got > 300*time.Millisecond {
			r.Errorf("subscribed again: waited %v", got)
		}
	})
}

// best plays until it takes no longer than it should, a few times at most: whatever
// else this machine does delays something now and then.
func best(tries int, bound time.Duration, play func() time.Duration) time.Duration {
	least := play()
	for n := 1; n < tries && least > bound; n++ {
		least = min(least, play())
	}
	return least
}

func TestRedis_W4_CommandsOfWaitersAreFew(t *testing.T) {
	both(t, func(r *rig) {
		a, b := r.client(r.server.Addr()), r.client(r.server.Addr())
		first := r.lock(a, "k")
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if l, err := b.Mutex("k").Lock(ctx); err == nil {
					_ = l.Release()
				}
			})
		}
		waitFor(r.T, func() bool { return Listening(a, "k") == 50 })
		r.server.ResetStats(r.T)
		time.Sleep(5 * time.Second) // what a heartbeat costs is the question
		stats := r.server.CommandStats(r.T)
		if n := stats["evalsha"].Calls + stats["eval"].Calls; n > 30 {
			r.Errorf("50 waiters cost %d scripts in a heartbeat", n)
		}
		cancel()
		wg.Wait()
		r.release(first)
	})
}

func TestRedis_R1_ScriptFlushIsNotNoticed(t *testing.T) {
	both(t, func(r *rig) {
		// Renewed as often as if it lived for a second.
		a, b := r.client(r.server.Addr(), leasehold.WithTTL(30*time.Second), leasehold.WithRenewFraction(0.01)), r.client(r.server.Addr())
		first := r.lock(a, "k")
		var others []*leasehold.Lease
		for i := range 50 {
			others = append(others, r.lock(a, fmt.Sprint(i)))
		}
		got := make(chan error, 1)
		go func() {
			l, err := b.Mutex("k").Lock(context.Background())
			if err == nil {
				err = l.Release()
			}
			got <- err
		}()
		for range 30 {
			r.admin("SCRIPT", "FLUSH")
			time.Sleep(100 * time.Millisecond)
		}
		for _, l := range others {
			waitFor(r.T, func() bool { return l.State() != leasehold.Unconfirmed }) // for want of a processor
			if l.State() != leasehold.Held {
				r.Fatalf("%s is %v", l.Key(), l.State())
			}
			r.admin("SCRIPT", "FLUSH")
			r.release(l)
		}
		r.release(first)
		if err := <-got; err != nil {
			r.Error(err)
		}
	})
}

// waitFor looks until ok; the server sends no event for it.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to that")
		}
	}
}
