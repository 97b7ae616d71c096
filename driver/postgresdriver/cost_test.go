package postgresdriver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// meter counts round trips and statements. A statement that is prepared first takes one more
// round trip, once for each connection.
type meter struct{ trips, statements atomic.Int64 }

func (m *meter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	m.trips.Add(1)
	m.statements.Add(1)
	return ctx
}

func (m *meter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	m.trips.Add(1)
	m.statements.Add(int64(data.Batch.Len()))
	return ctx
}

func (m *meter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (m *meter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (m *meter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// metered returns a store and the meter of its requests. Sweeps do not disturb the counts: the
// first one runs soon after the first call, the next a minute later.
func metered(t *testing.T, server *postgrestest.Server) (*Driver, *meter) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(server.URL())
	noError(t, err)
	m := new(meter)
	cfg.ConnConfig.Tracer = m
	d := warm(t, configured(t, cfg, WithCreate(), WithTimeout(20*time.Second)))
	eventually(t, func() bool { // the sweep has begun
		before := m.trips.Load()
		time.Sleep(100 * time.Millisecond)
		return m.trips.Load() == before
	})
	return d, m
}

// costs runs f and returns the round trips and the statements.
func (m *meter) costs(f func()) (trips, statements int64) {
	trips, statements = -m.trips.Load(), -m.statements.Load()
	f()
	return trips + m.trips.Load(), statements + m.statements.Load()
}

func TestCost_APairIsTwoRoundTrips(t *testing.T) {
	d, m := metered(t, postgrestest.Shared(t))
	pair := func(key string) {
		t.Helper()
		acquire(t, d, mutex(key, "a"), driver.Granted)
		release(t, d, key, "a")
	}
	const n = 100
	row := func(what string, most int64, key func(i int) string) {
		t.Helper()
		for i := range 10 {
			pair(key(-1 - i))
		}
		trips, _ := m.costs(func() {
			for i := range n {
				pair(key(i))
			}
		})
		// On a busy machine the last reading of the clock may be too old, and is repeated.
		if trips > n*most+n/2 {
			t.Errorf("%s: %d round trips for %d pairs", what, trips, n)
		}
	}
	row("a pair at a name that is known", 2, func(int) string { return "known" })
	row("a pair at a new name", 2, func(i int) string { return fmt.Sprint("new ", i) })
}

// If two processes change a record in turn, each guess is wrong, and its answer has the record.
func TestCost_APlaceNextToAnotherProcessIsThreeRoundTrips(t *testing.T) {
	server := postgrestest.Shared(t)
	d, m := metered(t, server)
	other := openURL(t, server.URL())
	pair := func(d *Driver, id string) {
		req := reader("places", id)
		req.Limit = 3
		acquire(t, d, req, driver.Granted)
		release(t, d, "places", id)
	}
	held := reader("places", "held")
	held.Limit = 3
	acquire(t, other, held, driver.Granted)
	const n = 100
	trips, _ := m.costs(func() {
		for range n {
			pair(d, "a")
			pair(other, "b")
		}
	})
	if trips > 3*n+n/4 {
		t.Errorf("%d round trips for %d pairs", trips, n)
	}
}

func TestCost_AThousandRenewalsAreAFewStatements(t *testing.T) {
	d, m := metered(t, postgrestest.Shared(t))
	count := 10_000
	if testing.Short() {
		count = 1000
	}
	refs := make([]driver.Ref, count)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < count; i += 8 {
				refs[i] = driver.Ref{Key: fmt.Sprint("job ", i), ID: "a", TTL: time.Minute}
				if _, err := d.Acquire(t.Context(), mutex(refs[i].Key, "a")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range []int{1, 1000, count} {
		batches := int64((n + 255) / 256)
		for try := 1; ; try++ {
			trips, statements := m.costs(func() { ask.Renew(t, d, driver.Granted, refs[:n]...) })
			if trips <= 2*batches && statements <= 7*batches {
				break
			}
			if try == 5 { // a busy machine's guess of the server's clock may be refused once
				t.Errorf("%d renewals: never less than %d round trips, %d statements", n, trips, statements)
				break
			}
		}
	}
}

// TestRenew_BatchesThatOverlapNeverDeadlock plays processes that renew the same leases in
// different orders, while the locks get new holders.
func TestRenew_BatchesThatOverlapNeverDeadlock(t *testing.T) {
	first, server := newStore(t, "")
	const count = 300
	refs := make([]driver.Ref, count)
	for i := range refs {
		refs[i] = driver.Ref{Key: fmt.Sprint("job ", i), ID: "a", TTL: time.Minute}
		acquire(t, first, mutex(refs[i].Key, "a"), driver.Granted)
	}
	var wg sync.WaitGroup
	for p := range 4 {
		d := openURL(t, server.URL())
		mine := make([]driver.Ref, count)
		for i := range mine {
			mine[i] = refs[(i*(2*p+1)*7+p)%count] // other orders, with some left out
		}
		wg.Go(func() {
			for range 10 {
				ask.Renew(t, d, driver.Granted, mine...)
			}
		})
	}
	wg.Wait()
	if n := value[int](t, admin(t, server.URL()), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}
