package library_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// TestLock_HR_D3_DeadWaiterWithoutAnAddressCostsWhatIsDocumented: a waiter without hints is never
// handed the lock, and so its death is noticed only when its ticket expires, as documented.
func TestLock_HR_D3_DeadWaiterWithoutAnAddressCostsWhatIsDocumented(t *testing.T) {
	for offset := range 5 { // where in its polling it dies
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, _ := open(t, store)
			cut := newFault(store)
			deaf := newClient(t, struct{ driver.Driver }{cut})
			first := lock(t, a, "k")
			ctx, cancel := context.WithCancel(t.Context())
			dying := newCalls(t)
			dying.begin(ctx, 0, deaf.Mutex("k"))
			all := queueUp(t, b, 1)
			time.Sleep(10*time.Second + time.Duration(offset)*100*time.Millisecond)
			cut.on(renew, 0, hangs) // it dies
			cut.on(acquire, 0, hangs)
			cut.on(release, 0, fails)
			died := time.Now()
			giveBack(t, first)
			giveBack(t, all.served(0))
			if took := time.Since(died); took > 4*time.Second+50*time.Millisecond {
				t.Errorf("a dead waiter cost %v", took)
			}
			cancel()
			dying.next()
			time.Sleep(time.Minute)
			noErr(t, deaf.Close())
		})
	}
	doc, err := os.ReadFile("../../../leasehold.go")
	if err != nil || !strings.Contains(strings.ReplaceAll(string(doc), "\n// ", " "), "four seconds if the store cannot wake it") {
		t.Errorf("the documentation of the package differs: %v", err)
	}
}

func TestHeld_HR_C8_RemainingIsAsOfNow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("holder"))
		b, _ := open(t, store)
		retrying, _ := open(t, store, leasehold.WithRetry(leasehold.Constant(time.Minute)))
		l := lock(t, a, "k", leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
		for _, c := range []*leasehold.Client{b, retrying} {
			_, err := c.Mutex("k", leasehold.WithMaxWait(10*time.Second)).Lock(t.Context())
			held := new(leasehold.HeldError)
			if !errors.As(err, &held) || held.Owner != "holder" {
				t.Fatalf("%v: it is still the same", err)
			}
			snap, _ := store.Inspect(t.Context(), "k")
			if off := (held.Remaining - snap.Holders[0].Remaining).Abs(); off > 5*time.Millisecond {
				t.Errorf("%v, but the store keeps it for %v", held.Remaining, snap.Holders[0].Remaining)
			}
		}
		_ = l.Release()
	})
}

// noQueue is a store without a queue: it refuses requests for a lock that is held.
type noQueue struct{ driver.Driver }

func (d noQueue) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.TicketTTL = 0
	return d.Driver.Acquire(ctx, req)
}

func TestStats_WaitingCountsThoseThatHaveBeenToldToWait(t *testing.T) {
	for name, row := range map[string]struct {
		store func(driver.Driver) driver.Driver
		opts  []leasehold.Option
	}{
		"in the queue":    {func(d driver.Driver) driver.Driver { return d }, nil},
		"within retries":  {func(d driver.Driver) driver.Driver { return d }, []leasehold.Option{leasehold.WithRetry(leasehold.Constant(time.Second))}},
		"without a queue": {func(d driver.Driver) driver.Driver { return noQueue{d} }, nil},
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			d := newFault(store)
			c := newClient(t, row.store(d), row.opts...)
			held := lock(t, a, "k")
			want := func(waiting, inside int) {
				t.Helper()
				synctest.Wait()
				if s := c.Stats(); s.Waiting != waiting || s.Held != inside {
					t.Errorf("%d wait and %d hold, want %d and %d", s.Waiting, s.Held, waiting, inside)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan *leasehold.Lease, 3)
			for i := range 3 {
				under := t.Context()
				if i == 0 {
					under = ctx
				}
				go func() {
					l, _ := c.RWMutex("k").RLock(under)
					got <- l
				}()
			}
			want(3, 0)
			time.Sleep(10 * time.Second) // however often they ask
			want(3, 0)
			_, err := c.Mutex("k").TryLock(t.Context())
			wantErr(t, err, leasehold.ErrHeld)
			want(3, 0)
			cancel()
			if l := <-got; l != nil {
				t.Error("granted after its context ended")
			}
			want(2, 0)
			giveBack(t, held)
			first, second := <-got, <-got
			want(0, 2)

			// A request that the store has not answered does not count.
			d.on(acquire, 0, hangs)
			go func() { _, _ = c.Mutex("other").Lock(ctx) }()
			asks, stop := context.WithCancel(t.Context())
			go func() { _, _ = c.Mutex("other").Lock(asks) }()
			want(0, 2)
			stop()
			for _, l := range []*leasehold.Lease{first, second} {
				giveBack(t, l)
			}
			want(0, 0)
			d.heal()
		})
	}
}
