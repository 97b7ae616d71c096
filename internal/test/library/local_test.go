package library_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/pinning"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// The lock handed on inside the process.

// calls collects the outcomes of concurrent Locks of one key. They are numbered in the order of
// the calls.
type calls struct {
	t   *testing.T
	c   *leasehold.Client
	got chan answer
}

type answer struct {
	i     int
	lease *leasehold.Lease
	err   error
}

func newCalls(t *testing.T) *calls { return &calls{t: t, got: make(chan answer, 1000)} }

// begin starts a call and waits until it is queued.
func (c *calls) begin(ctx context.Context, i int, m *leasehold.Mutex) {
	go func() {
		l, err := m.Lock(ctx)
		c.got <- answer{i, l, err}
	}()
	synctest.Wait()
}

// queueUp starts n calls of a client, which queue for one lock.
func queueUp(t *testing.T, c *leasehold.Client, n int) *calls {
	all := newCalls(t)
	for i := range n {
		all.begin(t.Context(), i, c.Mutex("k"))
	}
	return all
}

// next returns the outcome of the next call that ends.
func (c *calls) next() answer {
	c.t.Helper()
	select {
	case a := <-c.got:
		return a
	case <-time.After(time.Hour):
		c.t.Fatal("no call is served")
		return answer{}
	}
}

// served returns the lease of the next call, which must be the i'th.
func (c *calls) served(i int) *leasehold.Lease {
	c.t.Helper()
	a := c.next()
	if a.err != nil || a.i != i {
		c.t.Fatalf("call %d: %v, and not call %d served", a.i, a.err, i)
	}
	return a.lease
}

// rest serves the calls from the i'th to the n'th, each with a greater token than the one before.
func (c *calls) rest(token int64, i, n int) {
	c.t.Helper()
	for ; i < n; i++ {
		l := c.served(i)
		if l.Token() <= token {
			c.t.Errorf("token %d after %d", l.Token(), token)
		}
		token = l.Token()
		giveBack(c.t, l)
	}
}

// none checks that no call has an outcome now.
func (c *calls) none() {
	c.t.Helper()
	synctest.Wait()
	if len(c.got) > 0 {
		a := <-c.got
		c.t.Fatalf("call %d has an outcome already: %v", a.i, a.err)
	}
}

// TestLocal_PassesTheLeaseOnInArrivalOrder, and renews it, for more than twice its TTL. Observers see
// every grant.
func TestLocal_PassesTheLeaseOnInArrivalOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		const n = 25
		c, d, told := observed(t, store, leasehold.WithLocalHandover(100))
		all := queueUp(t, c, n)
		id, token := "", int64(0)
		for i := range n {
			l := all.served(i)
			all.none()
			if i > 0 && l.ID() != id || l.Token() <= token {
				t.Errorf("lease %q with token %d after %q with %d", l.ID(), l.Token(), id, token)
			}
			id, token = l.ID(), l.Token()
			if l.State() != leasehold.Held || l.Context().Err() != nil {
				t.Errorf("%d: %v", i, l.State())
			}
			snap, err := c.Inspect(t.Context(), "k")
			if err != nil || snap.Line != n-1-i || len(snap.Holders) != 1 || snap.Token < token {
				t.Errorf("%d stand in line: %+v, %v", n-1-i, snap, err)
			}
			if s := c.Stats(); s.Held != 1 || s.Waiting != n-1-i || s.Granted != int64(i+1) || s.Released != int64(i) {
				t.Errorf("%+v at %d", s, i)
			}
			waited := time.Duration(i) * time.Second
			if last := told.acq[i]; len(told.acq) != i+1 || last.Token != token || last.Waited != waited || last.Queued != (i > 0) {
				t.Errorf("%d: observed %+v", i, told.acq)
			}
			told.take()
			time.Sleep(time.Second)
			giveBack(t, l)
			giveBack(t, l)
			wantErr(t, context.Cause(l.Context()), leasehold.ErrReleased)
			synctest.Wait()
			lines := told.take()
			if told.ended[i].Token != token || !slices.Contains(lines, "ended: released after 1s") || !slices.Contains(lines, "released: confirmed") {
				t.Errorf("%d: observed %q, and the end of %d", i, lines, told.ended[i].Token)
			}
		}
		if a, r := d.count(acquire), d.count(release); a != 1 || r != 1 {
			t.Errorf("%d acquires, %d releases", a, r)
		}
		wantFree(t, store, "k")
		other, _ := open(t, store)
		if l := lock(t, other, "k"); l.Token() <= token {
			t.Errorf("token %d after %d", l.Token(), token)
		}
	})
}

func TestLocal_ProcessesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		const clients, callers, most = 3, 8, 3
		all := newCalls(t)
		var who []*leasehold.Client
		for range clients {
			c, _ := open(t, store, leasehold.WithLocalHandover(most-1))
			who = append(who, c)
		}
		for i := range callers {
			for k, c := range who {
				all.begin(t.Context(), k*callers+i, c.Mutex("k"))
			}
		}
		var turns []int
		next, token := make([]int, clients), int64(0)
		for range clients * callers {
			a := all.next()
			if a.err != nil {
				t.Fatal(a.err)
			}
			all.none()
			if a.lease.Token() <= token {
				t.Errorf("token %d after %d", a.lease.Token(), token)
			}
			token = a.lease.Token()
			k := a.i / callers
			if a.i%callers != next[k] {
				t.Errorf("call %d of client %d and not %d", a.i%callers, k, next[k])
			}
			next[k]++
			turns = append(turns, k)
			giveBack(t, a.lease)
		}
		for i := range turns {
			if i >= most && slices.Min(turns[i-most:i+1]) == slices.Max(turns[i-most:i+1]) && i < clients*most {
				t.Errorf("client %d has the lock %d times in a row: %v", turns[i], most+1, turns)
			}
		}
		wantFree(t, store, "k")
	})
}

// TestLocal_TokensRiseOverADeath: tokens that a process has reserved and not used when it dies
// are never used.
func TestLocal_TokensRiseOverADeath(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithTTL(ttl))
		all := queueUp(t, c, 10)
		giveBack(t, all.served(0))
		last := all.served(1)
		away(d, hangs)
		other, _ := open(t, store)
		l := must(t)(other.Mutex("k").Lock(t.Context()))
		wantErr(t, context.Cause(last.Context()), leasehold.ErrLost)
		wantErr(t, last.Release(), leasehold.ErrLost)
		if l.Token() <= last.Token()+8 {
			t.Errorf("token %d, and up to %d may have been given", l.Token(), last.Token()+8)
		}
		all.none()
		d.heal()
		giveBack(t, l)
		all.rest(l.Token(), 2, 10)
	})
}

func TestLocal_ContextEndsInTheLine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithName("web"))
		other, _ := open(t, store, leasehold.WithName("api"))
		foreign := lock(t, other, "k")
		all := newCalls(t)
		var cancels []context.CancelFunc
		for i := range 6 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			all.begin(ctx, i, c.Mutex("k"))
		}
		gone := func(i, position int, owner string) {
			t.Helper()
			time.Sleep(time.Second)
			cancels[i]()
			a := all.next()
			wantErr(t, a.err, leasehold.ErrHeld, context.Canceled)
			var held *leasehold.HeldError
			if !errors.As(a.err, &held) || a.i != i || held.Position != position || held.Owner != owner || held.Waited == 0 {
				t.Errorf("call %d: %+v, want place %d behind %s", a.i, held, position, owner)
			}
		}
		gone(0, 1, "api") // this call requested the lease that all share
		gone(2, 2, "api")
		giveBack(t, foreign)
		l := all.served(1)
		if n := d.count(acquire); n != 1 {
			t.Errorf("the line lost its place in the store: %d acquires", n)
		}
		gone(4, 2, "web")
		giveBack(t, l)
		l = all.served(3)
		gone(5, 1, "web")
		giveBack(t, l)
		wantFree(t, store, "k")

		foreign = lock(t, other, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("k").Lock(ctx) // the only one
		wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
		_, err = c.Mutex("k", leasehold.WithMaxWait(time.Second)).Lock(t.Context())
		wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
		time.Sleep(time.Second)
		snap, _ := store.Inspect(t.Context(), "k")
		if len(snap.Waiters) != 0 {
			t.Errorf("%d are left in the queue", len(snap.Waiters))
		}
		giveBack(t, foreign)
	})
}

func TestLocal_TryIsRefusedHere(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithName("web"))
		l := must(t)(c.Mutex("k").Lock(t.Context()))
		asked := d.count(acquire)
		_, err := c.Mutex("k").TryLock(t.Context())
		var held *leasehold.HeldError
		if !errors.As(err, &held) || held.Owner != "web" || held.Remaining <= 0 || held.Cause != nil {
			t.Errorf("%v", err)
		}
		if d.count(acquire) != asked {
			t.Error("the store was asked for a lock that this client holds")
		}
		giveBack(t, l)
		l = lock(t, c, "k")
		all := newCalls(t)
		all.begin(t.Context(), 0, c.Mutex("k"))
		giveBack(t, l)
		giveBack(t, all.served(0))
		wantFree(t, store, "k")
	})
}

func TestLocal_EndsOfATurn(t *testing.T) {
	for name, row := range map[string]struct {
		opts     []leasehold.Option
		end      func(t *testing.T, store *memdriver.Driver, all *calls, l *leasehold.Lease, cancel func()) (token int64)
		acquires int
	}{
		"detached": {end: func(t *testing.T, store *memdriver.Driver, all *calls, l *leasehold.Lease, _ func()) int64 {
			noErr(t, l.Detach(t.Context()))
			all.none()
			other, _ := open(t, store)
			adopted := must(t)(other.Mutex("k").Adopt(t.Context(), l.ID()))
			giveBack(t, adopted)
			return adopted.Token()
		}, acquires: 2},
		"lowered": {end: func(t *testing.T, store *memdriver.Driver, all *calls, l *leasehold.Lease, _ func()) int64 {
			noErr(t, l.Downgrade(t.Context()))
			other, _ := open(t, store)
			reader := must(t)(other.RWMutex("k").TryRLock(t.Context()))
			giveBack(t, l)
			all.none()
			giveBack(t, reader)
			return l.Token()
		}, acquires: 3}, // one of them lowers it
		"maximum": {end: func(t *testing.T, _ *memdriver.Driver, all *calls, l *leasehold.Lease, _ func()) int64 {
			<-l.Context().Done()
			all.none()
			giveBack(t, l)
			return l.Token()
		}, opts: []leasehold.Option{leasehold.WithMaxHold(time.Minute)}, acquires: 1},
		"parent context": {end: func(t *testing.T, _ *memdriver.Driver, all *calls, l *leasehold.Lease, cancel func()) int64 {
			cancel()
			all.none()
			giveBack(t, l)
			return l.Token()
		}, acquires: 1},
		"extended": {end: func(t *testing.T, _ *memdriver.Driver, all *calls, l *leasehold.Lease, _ func()) int64 {
			noErr(t, l.Extend(t.Context(), time.Hour))
			giveBack(t, l)
			return l.Token()
		}, acquires: 2}, // the next lease has its own TTL, also in the store
		"re-entered": {end: func(t *testing.T, _ *memdriver.Driver, all *calls, l *leasehold.Lease, _ func()) int64 {
			inner := must(t)(all.c.Mutex("k").Lock(context.WithoutCancel(l.Context())))
			if inner.Token() != l.Token() {
				t.Errorf("token %d inside %d", inner.Token(), l.Token())
			}
			giveBack(t, l)
			all.none()
			giveBack(t, inner)
			return l.Token()
		}, acquires: 1},
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, append(row.opts, leasehold.WithLocalHandover(100))...)
			all := newCalls(t)
			all.c = c
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			all.begin(ctx, 0, c.Mutex("k"))
			all.begin(t.Context(), 1, c.Mutex("k"))
			all.rest(row.end(t, store, all, all.served(0), cancel), 1, 2)
			wantFree(t, store, "k")
			if n := d.count(acquire); n != row.acquires {
				t.Errorf("%d acquires", n)
			}
		})
	}
}

// TestLocal_WhoSharesALine: only calls with the same options share a queue, and some options
// exclude a call from local queues.
func TestLocal_WhoSharesALine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		usual, two := leasehold.WithTTL(30*time.Second), leasehold.WithLabels(map[string]string{"b": "1", "a": "2"})
		for i, row := range []struct {
			first, second leasehold.Option
			shares        bool
		}{
			{usual, usual, true},
			{usual, leasehold.WithMaxHold(time.Hour), true},
			{usual, leasehold.WithMaxWait(time.Hour), true},
			{two, leasehold.WithLabels(map[string]string{"a": "2", "b": "1"}), true},
			{usual, two, false},
			{usual, leasehold.WithTTL(time.Minute), false},
			{usual, leasehold.WithName("else"), false},
			{usual, leasehold.WithMinToken(7), false},
			{usual, leasehold.WithPolicy(leasehold.Barging), false},
			{usual, leasehold.WithLockDelay(time.Second), false},
			{usual, leasehold.WithReentrantOwner("me"), false},
			{usual, leasehold.WithStrictOrder(), false},
			{usual, leasehold.WithoutRenewal(), false},
			{usual, leasehold.WithMinHold(time.Millisecond), false},
		} {
			c, d := open(t, store, leasehold.WithLocalHandover(100))
			key := fmt.Sprint("k", i)
			all := newCalls(t)
			all.begin(t.Context(), 0, c.Mutex(key, row.first))
			all.begin(t.Context(), 1, c.Mutex(key, row.second))
			all.rest(0, 0, 2)
			if shared := d.count(acquire) == 1; shared != row.shares {
				t.Errorf("row %d: shares is %v", i, shared)
			}
		}
		c, d := open(t, store, leasehold.WithLocalHandover(100))
		all := newCalls(t)
		l := must(t)(c.RWMutex("rw").Lock(t.Context()))
		all.begin(t.Context(), 0, c.Mutex("rw"))
		giveBack(t, l)
		giveBack(t, all.served(0))
		if n := d.count(acquire); n != 1 {
			t.Errorf("the write side of a read-write lock: %d acquires", n)
		}
	})
	for _, n := range []int{-1, 0, leasehold.MaxLocalHandover + 1} {
		_, err := leasehold.New(memdriver.New(), leasehold.WithLocalHandover(n))
		wantErr(t, err, leasehold.ErrInvalid)
	}
}

// TestLocal_StoreWithoutTokens: leases are not passed on if the store mints no tokens, or does
// not raise them.
func TestLocal_StoreWithoutTokens(t *testing.T) {
	for name, given := range map[string]int64{"none": 0, "not raised": 7} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithLocalHandover(100))
			d.Change = func(_ *intercept.Message, r *driver.Reply) {
				if r.Token > 0 {
					r.Token = given
				}
			}
			d.deliver(func(h driver.Hint, f func(driver.Hint)) {
				if h.Token > 0 {
					h.Token = given
				}
				f(h)
			})
			all := queueUp(t, c, 5)
			ids := make(map[string]bool)
			for i := range 5 {
				l := all.served(i)
				if all.none(); ids[l.ID()] || l.Token() != given {
					t.Errorf("lease %q with token %d", l.ID(), l.Token())
				}
				ids[l.ID()] = true
				giveBack(t, l)
			}
			wantFree(t, store, "k")
		})
	}
}

// TestLocal_PinnedLeaseGoesBackToTheStore: a lease that a transaction has pinned is not passed on
// without a request to the store.
func TestLocal_PinnedLeaseGoesBackToTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithTTL(ttl))
		all := queueUp(t, c, 5)
		first := all.served(0)
		giveBack(t, first)
		if pinning.Keep(first) {
			t.Error("a lease that was passed on is kept") // and so would be that of the next
		}
		l := all.served(1)
		if l.ID() != first.ID() || pinning.Keep(first) {
			t.Error("the lease was not passed on, or is still pinned for its first holder")
		}
		giveBack(t, l)
		pinned := all.served(2)
		if pinned.ID() != first.ID() || !pinning.Keep(pinned) || !pinning.Keep(pinned) {
			t.Error("the lease is not passed on, or not kept")
		}
		all.none()
		time.Sleep(2 * ttl) // it is renewed as before
		if pinned.State() != leasehold.Held || d.count(release) > 0 {
			t.Errorf("%v, %d releases", pinned.State(), d.count(release))
		}
		giveBack(t, pinned)
		next := all.served(3)
		if n := d.count(release); n != 1 || next.ID() == pinned.ID() || next.Token() <= pinned.Token() || pinning.Keep(pinned) {
			t.Errorf("%d releases, lease %s with token %d after %s with %d", n, next.ID(), next.Token(), pinned.ID(), pinned.Token())
		}
		giveBack(t, next)
		last := all.served(4)
		if giveBack(t, last); last.ID() != next.ID() {
			t.Error("the next lease was not passed on")
		}
		wantFree(t, store, "k")

		// A lease that is lost or detached is never passed on.
		for end, do := range map[string]func(*leasehold.Lease){
			"lost": func(l *leasehold.Lease) {
				d.on(renew, 0, hangs)
				<-l.Context().Done()
				d.heal()
			},
			"detached": func(l *leasehold.Lease) {
				noErr(t, l.Detach(t.Context()))
			},
		} {
			all.begin(t.Context(), 5, c.Mutex(end))
			l := all.served(5)
			if do(l); !pinning.Keep(l) {
				t.Errorf("%s: not kept", end)
			}
		}
		single := lock(t, c, "single")
		if !pinning.Keep(single) {
			t.Error("a lease that is not passed on is not kept")
		}
		giveBack(t, single)
		time.Sleep(2 * ttl)
	})
}

// TestLocal_L8_ARefillThatFindsNoLeaseEndsIt: the lease of the holder ends at once if the refill
// of tokens finds that the store has lost it, also if a transaction has pinned it.
func TestLocal_L8_ARefillThatFindsNoLeaseEndsIt(t *testing.T) {
	for name, pin := range map[string]bool{"pinned": true, "not pinned": false} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithTTL(ttl))
			const way = 100 * time.Millisecond
			d.on(renew, 1, fault{delay: way}) // the refill, which is under way when the lease is there
			all := queueUp(t, c, 3)
			l := all.served(0)
			if n := d.count(renew); n != 1 {
				t.Fatalf("%d renewals, want a refill", n)
			}
			if pin && !pinning.Keep(l) {
				t.Error("not kept")
			}
			deleteIt(t, store, l)
			start := time.Now()
			<-l.Context().Done()
			if passed := time.Since(start); passed > way {
				t.Errorf("the lease ended after %v, and the store answered after %v", passed, way)
			}
			wantErr(t, context.Cause(l.Context()), leasehold.ErrLost)
			next := all.served(1)
			if next.ID() == l.ID() || next.Token() <= l.Token() {
				t.Errorf("%q with token %d after %q with %d", next.ID(), next.Token(), l.ID(), l.Token())
			}
			wantErr(t, l.Release(), leasehold.ErrLost)
			if all.none(); next.State() != leasehold.Held {
				t.Errorf("the next is %v", next.State())
			}
			giveBack(t, next)
			giveBack(t, all.served(2))
			wantFree(t, store, "k")
			if n := d.count(acquire); n != 2 {
				t.Errorf("%d acquires", n)
			}
		})
	}
}

// TestLocal_TryOvertakesNobodyInTheLine, neither while a lease is passed on nor between two
// turns.
func TestLocal_TryOvertakesNobodyInTheLine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(2))
		away(d, fault{delay: time.Millisecond, late: time.Millisecond})
		var waiting atomic.Int32
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					waiting.Add(1)
					l, err := c.Mutex("k").Lock(context.Background())
					waiting.Add(-1)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					giveBack(t, l)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		for range 5000 {
			time.Sleep(300 * time.Microsecond)
			before := waiting.Load()
			if l, err := c.Mutex("k").TryLock(context.Background()); err == nil {
				if before > 1 {
					t.Errorf("a try took the lock while %d calls waited", before)
				}
				giveBack(t, l)
			}
		}
		close(stop)
		wg.Wait()
	})
}

// TestLocal_PanicOfAnObserverKeepsNoLock: the calls queued behind it still get the lock.
func TestLocal_PanicOfAnObserverKeepsNoLock(t *testing.T) {
	for _, where := range []string{"waiting", "acquired", "ended", "released"} {
		runBubble(t, where, func(t *testing.T, store *memdriver.Driver) {
			var armed atomic.Bool
			burst := func(at string) {
				if at == where && armed.CompareAndSwap(true, false) {
					panic("observer")
				}
			}
			c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithLocalHandover(100), leasehold.WithObserver(leasehold.Observer{
				Waiting: func(context.Context, leasehold.WaitingInfo) { burst("waiting") },
				Acquired: func(ctx context.Context, _ leasehold.AcquiredInfo) context.Context {
					burst("acquired")
					return ctx
				},
				Ended:    func(context.Context, leasehold.EndedInfo) { burst("ended") },
				Released: func(context.Context, leasehold.ReleasedInfo) { burst("released") },
			}))
			first := must(t)(c.Mutex("k").Lock(t.Context()))
			armed.Store(true)
			go func() {
				defer func() { _ = recover() }()
				l, err := c.Mutex("k").Lock(context.Background())
				if err == nil {
					giveBack(t, l)
				}
			}()
			synctest.Wait()
			func() {
				defer func() { _ = recover() }()
				giveBack(t, first)
			}()
			synctest.Wait()
			if armed.Load() {
				t.Fatal("the observer was not called")
			}
			next := must(t)(c.Mutex("k").Lock(t.Context()))
			giveBack(t, next)
			wantFree(t, store, "k")
			if held := c.Stats().Held; held != 0 {
				t.Errorf("%d leases are held", held)
			}
		})
	}
}

// TestLocal_AsksAStoreThatForgot: a lease whose last confirmation by the store is more than a
// second old is confirmed before it is passed on.
func TestLocal_AsksAStoreThatForgot(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100))
		d.deliver(func(driver.Hint, func(driver.Hint)) {}) // hints are lost
		other, _ := open(t, store)
		all := queueUp(t, c, 3)
		l := all.served(0)
		synctest.Wait() // tokens are reserved
		deleteIt(t, store, l)
		foreign := lock(t, other, "k")
		time.Sleep(1100 * time.Millisecond)
		_ = l.Release()
		all.none()
		giveBack(t, foreign)
		all.rest(foreign.Token(), 1, 3)
	})
}

// TestLocal_StoreThatDoesNotConfirmCostsASecond: the lease is valid, and is passed on.
func TestLocal_StoreThatDoesNotConfirmCostsASecond(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100))
		all := queueUp(t, c, 3)
		l := all.served(0)
		time.Sleep(2 * time.Second)
		d.on(renew, 0, hangs)
		start := time.Now()
		giveBack(t, l)
		next := all.served(1)
		if took := time.Since(start); took != time.Second {
			t.Errorf("passed on after %v", took)
		}
		d.heal()
		giveBack(t, next)
		all.rest(next.Token(), 2, 3)
	})
}

// TestLocal_PositionsAreThoseOfTheLine: calls that have left the queue are not counted.
func TestLocal_PositionsAreThoseOfTheLine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithLocalHandover(1000))
		l := lock(t, c, "k")
		rnd := rand.New(rand.NewPCG(1, 2))
		var line []int
		ends := make(map[int]context.CancelFunc)
		all := newCalls(t)
		for i := range 1000 {
			if len(line) > 0 && rnd.IntN(3) == 0 {
				at := rnd.IntN(len(line))
				ends[line[at]]()
				var held *leasehold.HeldError
				if a := all.next(); !errors.As(a.err, &held) || a.i != line[at] || held.Position != at+1 {
					t.Fatalf("call %d: %v, want place %d", a.i, a.err, at+1)
				}
				line = slices.Delete(line, at, at+1)
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ends[i] = cancel
			all.begin(ctx, i, c.Mutex("k"))
			line = append(line, i)
		}
		giveBack(t, l)
		for _, i := range line {
			giveBack(t, all.served(i))
		}
	})
}

// unordered is a store without a queue, like a quorum.
type unordered struct{ driver.Driver }

func (unordered) Supports(req driver.Request) error {
	if req.Ordered {
		return errors.ErrUnsupported
	}
	return nil
}

func TestLocal_HasNoEffectWithoutAQueue(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		d := newFault(store)
		all := queueUp(t, newClient(t, unordered{d}, leasehold.WithLocalHandover(100)), 3)
		all.rest(0, 0, 3)
		if n := d.count(acquire); n < 3 {
			t.Errorf("%d acquires for three calls", n)
		}
	})
}

// The store has handed the lock over, and refuses to confirm that and to take it back.
func TestLocal_AHandoverThatIsNotConfirmedIsUnknown(t *testing.T) {
	for name, outage := range map[string]time.Duration{"it goes on refusing": time.Second, "at once": 0} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithMaxOutage(outage))
			other, _ := open(t, store)
			held := lock(t, other, "k")
			all := queueUp(t, c, 2)
			away(d, refuses)
			giveBack(t, held)
			for range 2 {
				a := all.next()
				wantErr(t, a.err, leasehold.ErrUnknown)
				if errors.Is(a.err, leasehold.ErrUnavailable) {
					t.Errorf("call %d: %v excludes that the store did it", a.i, a.err)
				}
			}
			d.heal()
		})
	}
}

// TestLocal_WaitThatEndsBetweenTurnsSaysHeld: the store has answered the queue, so the wait is no
// outage.
func TestLocal_WaitThatEndsBetweenTurnsSaysHeld(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(1))
		away(d, fault{delay: 10 * time.Millisecond, late: 10 * time.Millisecond})
		var wg sync.WaitGroup
		for i := range 200 {
			time.Sleep(3 * time.Millisecond)
			wg.Go(func() {
				l, err := c.Mutex("k", leasehold.WithMaxWait(60*time.Millisecond+time.Duration(i)*100*time.Microsecond)).Lock(context.Background())
				if err == nil {
					time.Sleep(5 * time.Millisecond)
					giveBack(t, l)
				} else if wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded); errors.Is(err, leasehold.ErrUnknown) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// TestLocal_OutageCountsForEach: WithMaxOutage applies to each call from its own start, also to a
// call that starts during the outage.
func TestLocal_OutageCountsForEach(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithLocalHandover(100), leasehold.WithMaxOutage(10*time.Second))
		d.on(acquire, 0, hangs)
		all := newCalls(t)
		all.begin(t.Context(), 0, c.Mutex("k"))
		time.Sleep(9 * time.Second)
		all.begin(t.Context(), 1, c.Mutex("k"))
		if a := all.next(); a.i != 0 {
			t.Errorf("call %d: %v", a.i, a.err)
		} else {
			wantErr(t, a.err, leasehold.ErrUnknown)
		}
		all.none()
		d.heal()
		giveBack(t, all.served(1))
	})
}
