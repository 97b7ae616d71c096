package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
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

func (q *queue) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Equal(q.order, want) {
		t.Errorf("order %q, want %q", q.order, want)
	}
}

func TestLock_W2_CancelledWaiterDisturbsNobody(t *testing.T) {
	for place := range 3 { // head, middle, tail
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, _ := open(t, store)
			first := lock(t, a, "k")
			q := &queue{}
			ctx, cancel := context.WithCancel(t.Context())
			var want []string
			for i := range 3 {
				name, c := fmt.Sprint(i), context.Background()
				if i == place {
					c = ctx
				} else {
					want = append(want, name)
				}
				q.join(t, c, b, name, time.Second)
			}
			cancel()
			q.want(t, fmt.Sprintf("%d gave up", place))
			snap, _ := store.Inspect(t.Context(), "k")
			if len(snap.Waiters) != 2 {
				t.Errorf("%d waiters stayed in the queue, want 2", len(snap.Waiters))
			}
			if err := first.Release(); err != nil {
				t.Fatal(err)
			}
			q.want(t, fmt.Sprintf("%d gave up", place), want[0]) // at once
			time.Sleep(time.Second)
			q.want(t, append([]string{fmt.Sprintf("%d gave up", place)}, want...)...)
			time.Sleep(2 * time.Second)
			wantFree(t, store, "k")
		})
	}
}

func TestLock_W3_EveryHintLostEndsWithinTheDocumentedBound(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		d.hints = func(driver.Hint, func(driver.Hint)) {}
		for i := range 10 {
			outer := lock(t, a, "k")
			q := &queue{}
			q.join(t, t.Context(), b, "b", 0)
			time.Sleep(time.Duration(i) * 700 * time.Millisecond)
			start := time.Now()
			if err := outer.Release(); err != nil {
				t.Fatal(err)
			}
			for q.mu.Lock(); len(q.order) == 0; q.mu.Lock() {
				q.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
			q.mu.Unlock()
			if got := time.Since(start); got > 5500*time.Millisecond {
				t.Errorf("waited %v for a free lock, want at most a heartbeat", got)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestLock_W4_HeadEntersAtTheEndOfADeadHoldersLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, dead := open(t, store, leasehold.WithTTL(ttl))
		b, d := open(t, store)
		start := time.Now()
		lock(t, a, "k")
		dead.on(renew, 0, fault{skip: true, err: errReplyLost})
		q := &queue{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 50 {
			q.join(t, ctx, b, fmt.Sprint(i), time.Hour)
		}
		time.Sleep(ttl - time.Since(start) - time.Millisecond)
		q.want(t)
		time.Sleep(3 * time.Millisecond)
		q.want(t, "0")
		if n := d.count(renew); n > 200 {
			t.Errorf("50 waiters asked %d times in %v, want once per heartbeat", n, ttl)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

func TestLock_W5_W6_DeadWaitersCostOneWindow(t *testing.T) {
	for _, n := range []int{1, 1000} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			dead, deaf := open(t, store)
			b, d := open(t, store)
			first := lock(t, a, "k")
			ctx, cancel := context.WithCancel(t.Context())
			for range n {
				go func() { _, _ = dead.Mutex("k").Lock(ctx) }()
			}
			time.Sleep(time.Second)
			// From now on nothing of them reaches the store, nor them.
			deaf.on(renew, 0, hangs)
			deaf.on(acquire, 0, hangs)
			deaf.on(release, 0, fails)
			deaf.mu.Lock()
			deaf.hints = func(driver.Hint, func(driver.Hint)) {}
			deaf.mu.Unlock()
			q := &queue{}
			q.join(t, t.Context(), b, "b", 0)
			if err := first.Release(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2100 * time.Millisecond)
			q.want(t, "b")
			if n := d.count(renew) + d.count(acquire); n > 10 {
				t.Errorf("%d requests by one waiter in a second: a hot loop", n)
			}
			cancel()
			time.Sleep(time.Minute)
			wantFree(t, store, "k")
		})
	}
}

func TestLock_W7_OrderOutlivesTwentyWindows(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, _ := open(t, store)
		first := lock(t, a, "k")
		q := &queue{}
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprint(i))
			q.join(t, t.Context(), b, want[i], time.Millisecond)
			time.Sleep(time.Second)
		}
		time.Sleep(20 * 15 * time.Second)
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		q.want(t, want...)
	})
}

func TestTryLock_W8_NeverOvertakesALiveWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		gate := make(chan struct{})
		first := lock(t, a, "k")
		q := &queue{}
		q.join(t, t.Context(), b, "b", time.Second)
		d.mu.Lock()
		d.hints = func(h driver.Hint, f func(driver.Hint)) { <-gate; f(h) }
		d.mu.Unlock()
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		_, err := a.Mutex("k").TryLock(t.Context())
		wantErr(t, err, leasehold.ErrHeld)
		close(gate)
		q.want(t, "b")
		time.Sleep(2 * time.Second)
	})
}

func TestLock_W10_GrantToAWaiterThatHasJustGivenUpPassesOn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		c, _ := open(t, store)
		first := lock(t, a, "k")
		q := &queue{}
		ctx, cancel := context.WithCancel(t.Context())
		q.join(t, ctx, b, "b", time.Hour)
		q.join(t, t.Context(), c, "c", time.Second)
		d.mu.Lock()
		d.hints = func(h driver.Hint, f func(driver.Hint)) { cancel(); time.Sleep(time.Millisecond); f(h) }
		d.mu.Unlock()
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		slices.Sort(q.order) // both at one instant
		q.want(t, "b gave up", "c")
		time.Sleep(2 * time.Second)
	})
}

func TestLock_W12_OneBackoffServesAnyNumberOfWaits(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		first := lock(t, a, "k")
		strategy := leasehold.Exponential(10*time.Millisecond, time.Second)
		strategy.Jitter, strategy.Attempts = 0, 5
		b, d := open(t, store, leasehold.WithRetry(strategy))
		for range 2 {
			var wg sync.WaitGroup
			start, before := time.Now(), d.count(acquire)
			for range 64 {
				wg.Go(func() {
					_, err := b.Mutex("k").Lock(t.Context())
					wantErr(t, err, leasehold.ErrHeld)
					if got, want := time.Since(start), 150*time.Millisecond; got != want { // 10+20+40+80
						t.Errorf("5 attempts took %v, want %v", got, want)
					}
				})
			}
			wg.Wait()
			if n := d.count(acquire) - before; n != 5*64 {
				t.Errorf("%d requests, want %d", n, 5*64)
			}
		}
		if err := first.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestLock_HintThatOvertakesTheAnswerIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		q := &queue{}
		first := lock(t, a, "k")
		q.join(t, t.Context(), b, "subscribes", 0)
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		second := lock(t, a, "k")
		d.on(acquire, 1, fault{late: 100 * time.Millisecond})
		q.join(t, t.Context(), b, "b", 10*time.Second)
		if err := second.Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(101 * time.Millisecond)
		q.want(t, "subscribes", "b")
		time.Sleep(11 * time.Second)
	})
}

func TestLock_HintsMayBeLateOrDoubled(t *testing.T) {
	for name, deliver := range map[string]func(driver.Hint, func(driver.Hint)){
		"late":    func(h driver.Hint, f func(driver.Hint)) { time.AfterFunc(500*time.Millisecond, func() { f(h) }) },
		"useless": func(h driver.Hint, f func(driver.Hint)) { time.AfterFunc(3*time.Second, func() { f(h) }) },
		"doubled": func(h driver.Hint, f func(driver.Hint)) { f(h); f(h); time.AfterFunc(time.Second, func() { f(h) }) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
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
		})
	}
}
