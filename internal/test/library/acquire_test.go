package library_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

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
