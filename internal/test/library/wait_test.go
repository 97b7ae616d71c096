package library_test

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
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// queue collects who got the lock, in order.
type queue struct {
	mu    sync.Mutex
	order []string
}

func (q *queue) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order = append(q.order, name)
}

// join starts a waiter that holds for the given time, and returns when it is
// queued or inside.
func (q *queue) join(t *testing.T, ctx context.Context, c *leasehold.Client, name string, hold time.Duration) {
	t.Helper()
	go func() {
		l, err := c.Mutex("k").Lock(ctx)
		if err != nil {
			q.add(name + " gave up")
			return
		}
		q.add(name)
		pause(ctx, hold)
		if err := l.Release(); err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	synctest.Wait()
}

func TestLock_HintsMayBeLateOrDoubled(t *testing.T) {
	for name, deliver := range map[string]func(driver.Hint, func(driver.Hint)){
		"late":    func(h driver.Hint, f func(driver.Hint)) { time.AfterFunc(500*time.Millisecond, func() { f(h) }) },
		"useless": func(h driver.Hint, f func(driver.Hint)) { time.AfterFunc(3*time.Second, func() { f(h) }) },
		"doubled": func(h driver.Hint, f func(driver.Hint)) { f(h); f(h); time.AfterFunc(time.Second, func() { f(h) }) },
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, d := open(t, store)
			d.hints = deliver
			var mu sync.Mutex
			inside, tokens := 0, []int64{}
			var wg sync.WaitGroup
			for _, c := range []*leasehold.Client{a, b, a, b, b} {
				wg.Go(func() {
					for range 5 {
						l, err := c.Mutex("k").Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						inside++
						if inside > 1 {
							t.Error("two holders")
						}
						tokens = append(tokens, l.Token())
						mu.Unlock()
						time.Sleep(20 * time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						if err := l.Release(); err != nil && !errors.Is(err, leasehold.ErrLost) {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
				t.Errorf("tokens do not rise: %v", tokens)
			}
			time.Sleep(time.Minute)
			wantFree(t, store, "k")
		})
	}
}

// What a waiter knows, and whom it listens to.

// await has c wait for k until the time is up, and returns the refusal.
func await(c *leasehold.Client, d time.Duration) chan *leasehold.HeldError {
	refused := make(chan *leasehold.HeldError, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		_, err := c.Mutex("k").Lock(ctx)
		held := new(leasehold.HeldError)
		errors.As(err, &held)
		refused <- held
	}()
	synctest.Wait()
	return refused
}

func TestHeld_HR_C8_NamesNobodyWhoHasGone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("first"))
		b, _ := open(t, store, leasehold.WithName("second"))
		c, _ := open(t, store)
		d, _ := open(t, store)
		first := lock(t, a, "k")
		go func() { _, _ = b.Mutex("k").Lock(t.Context()) }()
		synctest.Wait()
		next := await(c, 4200*time.Millisecond)
		last := await(d, 8200*time.Millisecond)
		time.Sleep(2 * time.Second)
		giveBack(t, first)
		for _, refused := range []chan *leasehold.HeldError{next, last} {
			held := <-refused
			if held.Owner == "first" {
				t.Errorf("%q, who released it long ago", held)
			}
		}
	})
}

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

// TestLock_HR_G3_BurstOfWaitersIsAskedOnceEach has a store answer each request in 6 ms, and
// so needs 7 s for 1200 callers, longer than the time of one try. No request may be sent
// twice because earlier requests take their time, and no caller may give up.
func TestLock_HR_G3_BurstOfWaitersIsAskedOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		holder, _ := open(t, store)
		first := lock(t, holder, "k")
		defer func() { _ = first.Release() }()
		d := newCounter(store, 6*time.Millisecond, 2*time.Second)
		c := newClient(t, d)
		const n = 1200
		failed := burst(t, c, store, n, 9*time.Second)
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
			giveBack(t, first)
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
			noErr(t, deaf.Close())
		})
	}
	doc, err := os.ReadFile("../../../leasehold.go")
	if err != nil || !strings.Contains(strings.ReplaceAll(string(doc), "\n// ", " "), "four seconds if the store cannot wake it") {
		t.Errorf("the package does not say so: %v", err)
	}
}

func TestHeld_HR_C8_RemainingIsAsOfNow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("holder"))
		b, _ := open(t, store)
		retrying, _ := open(t, store, leasehold.WithRetry(leasehold.Constant(time.Minute)))
		l := lock(t, a, "k", leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
		all := []chan *leasehold.HeldError{await(b, 10*time.Second), await(retrying, 10*time.Second)}
		for _, refused := range all {
			held := <-refused
			if held.Owner != "holder" {
				t.Errorf("%q: it is still the same", held)
			}
			snap, _ := store.Inspect(t.Context(), "k")
			if off := (held.Remaining - snap.Holders[0].Remaining).Abs(); off > 5*time.Millisecond {
				t.Errorf("%v, but the store keeps it for %v", held.Remaining, snap.Holders[0].Remaining)
			}
		}
		_ = l.Release()
	})
	// Who is first of the queue is told anew when the holder has renewed.
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, _ := open(t, store)
		lock(t, a, "k")
		if held := <-await(b, 55*time.Second); held.Remaining < 19*time.Second {
			t.Errorf("%v left, of a lease that is renewed every 10 s", held.Remaining)
		}
	})
}
