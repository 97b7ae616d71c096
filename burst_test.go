package leasehold_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// counter is a store with one clerk: it takes requests for locks one after the
// other, each for a while, and finishes also those whose callers have gone.
type counter struct {
	*faultDriver
	each, patience time.Duration
	clerk          chan struct{}

	mu       sync.Mutex
	asked    int
	flying   int
	peak     int
	told     int // requests that carried an address
	released int
}

func newCounter(store *memdriver.Driver, each, patience time.Duration) *counter {
	return &counter{faultDriver: newFault(store), each: each, patience: patience, clerk: make(chan struct{}, 1)}
}

func (c *counter) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	c.mu.Lock()
	c.asked++
	if c.flying++; c.flying > c.peak {
		c.peak = c.flying
	}
	if req.HintAddress != "" {
		c.told++
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.flying--
		c.mu.Unlock()
	}()
	type outcome struct {
		driver.Reply
		error
	}
	done := make(chan outcome, 1)
	go func() {
		c.clerk <- struct{}{}
		time.Sleep(c.each)
		reply, err := c.faultDriver.Acquire(context.WithoutCancel(ctx), req)
		<-c.clerk
		done <- outcome{reply, err}
	}()
	short, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	select {
	case o := <-done:
		return o.Reply, o.error
	case <-short.Done():
		return driver.Reply{}, short.Err()
	}
}

// Release takes its time, too, and is counted.
func (c *counter) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	c.mu.Lock()
	c.released++
	c.mu.Unlock()
	done := make(chan error, 1)
	var reply driver.Reply
	go func() {
		c.clerk <- struct{}{}
		time.Sleep(c.each)
		r, err := c.store.Release(context.WithoutCancel(ctx), ref)
		<-c.clerk
		reply = r
		done <- err
	}()
	short, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	select {
	case err := <-done:
		return reply, err
	case <-short.Done():
		return driver.Reply{}, short.Err()
	}
}

func (c *counter) state() (asked, peak, told int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, c.peak, c.told
}

// burst has n callers wait for one lock that is held, until all stand in the
// store's queue or have failed, and returns the errors of those that have.
func burst(t *testing.T, c *leasehold.Client, store *memdriver.Driver, n int, within time.Duration) (failed []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			_, err := c.Mutex("k").Lock(ctx)
			if err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	time.Sleep(within)
	snap, err := store.Inspect(ctx, "k")
	if err != nil || len(snap.Waiters) != n {
		t.Errorf("%d of %d stand in the queue, %v", len(snap.Waiters), n, err)
	}
	cancel()
	wg.Wait()
	return failed
}

// A store that answers each request in 6 ms needs 12 s for two thousand. None of
// them may be asked twice because those before it take their time, and none may
// give up.
func TestLock_HR_G3_BurstOfWaitersIsAskedOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		holder, _ := open(t, store)
		first := lock(t, holder, "k")
		defer func() { _ = first.Release() }()
		d := newCounter(store, 6*time.Millisecond, 2*time.Second)
		c, err := leasehold.New(d)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const n = 2000
		failed := burst(t, c, store, n, 14*time.Second)
		if len(failed) > 0 {
			t.Errorf("%d of %d gave up, the first with %v", len(failed), n, failed[0])
		}
		asked, peak, told := d.state()
		if asked > n+n/100 {
			t.Errorf("%d requests for %d locks", asked, n)
		}
		if peak > 256 {
			t.Errorf("%d requests were under way at a time", peak)
		}
		// As many leave at once, and one more when the first answer comes, by which the
		// client begins to listen.
		if told < n-256-1 {
			t.Errorf("%d of %d first requests carried the address that there was", told, n)
		}
		time.Sleep(10 * time.Minute) // the clerk ends, too
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.released > n+n/100 {
			t.Errorf("%d releases of %d places that were given up", d.released, n)
		}
	})
}

// The store is slower than a try's time for longer than an outage may last, but
// it answers.
func TestLock_HR_G3_UnlimitedLockGoesOnWhileTheStoreAnswersOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.onKey(acquire, "slow", 0, hangs)
		time.AfterFunc(45*time.Second, d.heal)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // somebody else is answered all the time
			for beat := time.NewTicker(time.Second); ; {
				select {
				case <-beat.C:
					if err := lock(t, c, "quick").Release(); err != nil {
						t.Error(err)
					}
				case <-stop:
					beat.Stop()
					return
				}
			}
		})
		l, err := c.Mutex("slow").Lock(t.Context())
		close(stop)
		wg.Wait()
		if err != nil {
			t.Fatalf("an unlimited wait ended: %v", err)
		}
		budgets := []time.Duration{}
		for _, call := range d.seen(acquire) {
			if call.key == "slow" {
				budgets = append(budgets, call.budget)
			}
		}
		if len(budgets) < 3 || slices.Min(budgets[1:]) < budgets[0]*3/2 {
			t.Errorf("tries of %v, want later ones longer", budgets)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A node that hangs has its requests under way for long. Those for other nodes
// must not stand behind them.
func TestLock_HR_G3_NodeThatHangsDelaysNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.onKey(acquire, "hung", 0, hangs)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { _, _ = c.Mutex("hung").Lock(ctx) })
		}
		synctest.Wait()
		start := time.Now()
		if err := lock(t, c, "well").Release(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("a lock on another node took %v", took)
		}
		cancel()
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

// What was never sent has certainly not happened.
func TestLock_HR_G3_WaitThatEndsBeforeItIsAskedIsDefinite(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.on(acquire, 0, hangs)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() { _, _ = c.Mutex("k").Lock(ctx) })
		}
		synctest.Wait()
		before := d.count(acquire)
		short, done := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer done()
		_, err := c.Mutex("k").Lock(short)
		wantErr(t, err, leasehold.ErrUnavailable, context.DeadlineExceeded)
		if errors.Is(err, leasehold.ErrUnknown) || errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%v says more than is known", err)
		}
		if n := d.count(acquire) - before; n > 0 {
			t.Errorf("%d requests were sent meanwhile", n)
		}
		cancel()
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

// Waiters whose questions are not answered do not add to what a store that is
// behind has to do, and keep their places nevertheless.
func TestLock_HR_G3_UnansweredWaiterAsksLessAndLessOften(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		first := lock(t, a, "k")
		q := &queue{}
		q.join(t, t.Context(), b, "b", 0)
		d.on(renew, 0, fails)
		before := d.count(renew)
		time.Sleep(12 * time.Second)
		if n := d.count(renew) - before; n < 4 || n > 10 {
			t.Errorf("%d questions in 12 s", n)
		}
		d.heal()
		q.join(t, t.Context(), a, "a", 0)
		time.Sleep(10 * time.Second)
		if err := first.Release(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		q.want(t, "b", "a")
	})
}

// A waiter that hears no hints is never handed the lock, so that no window shows
// its death: its ticket runs out, as the documentation says.
func TestLock_HR_D3_DeadWaiterWithoutAnAddressCostsWhatIsDocumented(t *testing.T) {
	for offset := range 5 { // where in its polling it dies
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, _ := open(t, store)
			cut := newFault(store)
			deaf, err := leasehold.New(struct{ driver.Driver }{cut})
			if err != nil {
				t.Fatal(err)
			}
			first := lock(t, a, "k")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = deaf.Mutex("k").Lock(ctx)
			}()
			synctest.Wait()
			q := &queue{}
			q.join(t, t.Context(), b, "b", 0)
			time.Sleep(10*time.Second + time.Duration(offset)*100*time.Millisecond)
			cut.on(renew, 0, hangs) // it dies
			cut.on(acquire, 0, hangs)
			cut.on(release, 0, fails)
			died := time.Now()
			if err := first.Release(); err != nil {
				t.Error(err)
			}
			for q.mu.Lock(); len(q.order) == 0; q.mu.Lock() {
				q.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
			q.mu.Unlock()
			if took := time.Since(died); took > 4*time.Second+50*time.Millisecond {
				t.Errorf("a dead waiter cost %v", took)
			}
			cancel()
			<-done
			time.Sleep(time.Minute)
			if err := deaf.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	doc, err := os.ReadFile("leasehold.go")
	if err != nil || !strings.Contains(strings.ReplaceAll(string(doc), "\n// ", " "), "four if the store cannot wake it") {
		t.Errorf("the package does not say so: %v", err)
	}
}
