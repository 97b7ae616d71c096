package postgresdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

// held is a lease of a driver's.
type held struct{ key, id string }

func (h held) Key() string { return h.key }
func (h held) ID() string  { return h.id }

func brief(key, id string, ttl time.Duration) driver.Request {
	req := mutex(key, id)
	req.TTL = ttl
	return req
}

// begun returns a transaction that ends with the test at the latest.
func begun(t *testing.T, url string, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := admin(t, url).BeginTx(t.Context(), o)
	noError(t, err)
	return tx
}

// pins returns a transaction that pins leases.
func pins(t *testing.T, url string, leases ...Lease) pgx.Tx {
	t.Helper()
	tx := begun(t, url, pgx.TxOptions{})
	for _, l := range leases {
		noError(t, Pin(t.Context(), tx, l))
	}
	return tx
}

// soonGranted waits until a request is granted.
func soonGranted(t *testing.T, d *Driver, req driver.Request) {
	t.Helper()
	eventually(t, func() bool {
		reply, err := d.Acquire(t.Context(), req)
		noError(t, err)
		return reply.State == driver.Granted
	})
}

func TestPin_KeepsTheLockAfterTheEndOfTheLease(t *testing.T) {
	live.Test(t)
	t.Parallel()
	const ttl = 3 * time.Second // in which it has to be pinned
	d, server := newStore(t, "")
	other := openURL(t, server.URL())
	sub := watch(t, other, unheard)
	for key, end := range map[string]func(*testing.T){
		"released": func(t *testing.T) { release(t, d, "released", "a") },
		"broken": func(t *testing.T) {
			if reply, err := d.Break(t.Context(), "broken", "a", "why not"); err != nil || reply.State != driver.Released {
				t.Errorf("break: %+v, %v", reply, err)
			}
		},
		"expired": func(*testing.T) { time.Sleep(ttl + 500*time.Millisecond) },
	} {
		t.Run(key, func(t *testing.T) {
			acquire(t, d, brief(key, "a", ttl), driver.Granted)
			tx := pins(t, server.URL(), held{key, "a"})
			queue, barging := ticket(key, "b"), mutex(key, "c")
			queue.HintAddress, barging.Policy = sub.Address(), driver.Barging
			acquire(t, other, queue, driver.Queued)
			end(t)
			for begin := time.Now(); time.Since(begin) < 500*time.Millisecond; time.Sleep(20 * time.Millisecond) {
				acquire(t, other, queue, driver.Queued)
				acquire(t, d, barging, driver.Busy)
			}
			noError(t, tx.Rollback(t.Context()))
			soonGranted(t, other, queue)
			late := begun(t, server.URL(), pgx.TxOptions{})
			if err := Pin(t.Context(), late, held{key, "a"}); !errors.Is(err, ErrNotHeld) {
				t.Errorf("the holder of before: %v", err)
			}
		})
	}
}

// The server shows the commit of a change of hands before it releases the pin of its transaction.
func TestTransact_APinThatEndsAtOnceClosesNoLock(t *testing.T) {
	d, server := newStore(t, "")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	tx, calls := pins(t, server.URL(), held{"k", "a"}), 0
	_, err := d.table.Transact(t.Context(), []roomdriver.Item{{Key: "k"}}, func(_ int, found roomdriver.Found) roomdriver.Change {
		if calls++; calls == 2 {
			noError(t, tx.Rollback(t.Context()))
		}
		if found.Shut {
			t.Errorf("call %d closes the lock", calls)
		}
		return roomdriver.Change{Record: found.Record, Enters: true}
	})
	if err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestPin_LetsTheHolderRenewAndReadersJoin(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, server := newStore(t, "")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	acquire(t, d, reader("shared", "r"), driver.Granted)
	pins(t, server.URL(), held{"k", "a"}, held{"shared", "r"})
	// Alone, and in a batch.
	refs := []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}, {Key: "shared", ID: "r", TTL: time.Minute}}
	ask.Renew(t, d, driver.Granted, refs[0])
	ask.Renew(t, d, driver.Granted, refs...)
	acquire(t, d, reader("shared", "s"), driver.Granted)
}

func TestPin_OfAPlaceKeepsOthersFromTheirs(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, server := newStore(t, "")
	place := func(id string, limit int) driver.Request {
		req := reader("k", id)
		req.Limit = limit
		return req
	}
	acquire(t, d, place("a", 3), driver.Granted)
	acquire(t, d, place("b", 3), driver.Granted)
	tx := pins(t, server.URL(), held{"k", "a"})
	resize := place("resize", 5)
	resize.Resize = true
	acquire(t, d, resize, driver.Resized)
	acquire(t, d, place("c", 5), driver.Busy)
	noError(t, tx.Commit(t.Context()))
	soonGranted(t, d, place("c", 5))
}

// A writer cannot become a reader while its transaction goes on: other readers could join it
// before it has committed.
func TestPin_KeepsOutReadersWhomADowngradeWouldLetIn(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, server := newStore(t, "")
	for key, outside := range map[string]driver.State{"alone": driver.Busy, "with a queue": driver.Queued} {
		t.Run(key, func(t *testing.T) {
			acquire(t, d, mutex(key, "a"), driver.Granted)
			first := reader(key, "r")
			if outside == driver.Queued { // it has a place in the queue
				first.TicketTTL = time.Minute
			}
			acquire(t, d, first, outside)
			tx := pins(t, server.URL(), held{key, "a"})
			downgrade := reader(key, "a")
			downgrade.Downgrade = true
			for range 3 {
				if reply, err := d.Acquire(t.Context(), downgrade); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("a downgrade, although the transaction goes on: %+v, %v", reply, err)
				}
				acquire(t, d, first, outside)
				acquire(t, d, reader(key, "s"), driver.Busy)
			}
			snap, err := d.Inspect(t.Context(), key)
			if err != nil || len(snap.Holders) != 1 || snap.Holders[0].Mode != driver.Exclusive {
				t.Errorf("%+v, %v: want the writer alone", snap, err)
			}
			noError(t, tx.Commit(t.Context()))
			acquire(t, d, downgrade, driver.Granted)
			soonGranted(t, d, first)
			pins(t, server.URL(), held{key, "a"}) // the pin of a reader keeps no other reader out
			acquire(t, d, reader(key, "s"), driver.Granted)
		})
	}
}

// standing waits until a call of c waits for a lock.
func standing(t *testing.T, c *leasehold.Client) {
	t.Helper()
	eventually(t, func() bool { return c.Stats().Waiting > 0 })
}

// A process that hands a lease over inside itself waits until the transaction of the last
// holder has ended.
func TestPin_KeepsTheLockFromTheNextInsideTheProcess(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, server := newStore(t, "")
	c, err := leasehold.New(d, leasehold.WithLocalHandover(100))
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	lock := func() <-chan *leasehold.Lease {
		got := make(chan *leasehold.Lease, 1)
		go func() {
			defer close(got)
			if l, err := c.Mutex("k").Lock(t.Context()); err != nil {
				t.Error(err)
			} else {
				got <- l
			}
		}()
		return got
	}
	first := <-lock()
	second := lock()
	standing(t, c)
	tx := pins(t, server.URL(), first)
	noError(t, first.Release())
	select {
	case l := <-second:
		t.Fatalf("%s is granted although the transaction goes on", l.ID())
	case <-time.After(500 * time.Millisecond):
	}
	noError(t, tx.Commit(t.Context()))
	// A holder that has passed the lease on can no longer pin it.
	l := <-second
	third := lock()
	standing(t, c)
	noError(t, l.Release())
	next := <-third
	if next.ID() != l.ID() {
		t.Error("the lease was not passed on inside the process")
	}
	tx = begun(t, server.URL(), pgx.TxOptions{})
	if err := Pin(t.Context(), tx, l); !errors.Is(err, ErrNotHeld) {
		t.Errorf("the former holder: %v", err)
	}
	if err := Pin(t.Context(), tx, next); err != nil {
		t.Errorf("the present holder: %v", err)
	}
	noError(t, next.Release())
}

func TestPin_SaysWhatIsWrong(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, server := newStore(t, "")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	repeatable := begun(t, server.URL(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err := Pin(t.Context(), repeatable, held{"k", "a"}); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	tx := begun(t, server.URL(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
	for _, h := range []held{{"k", "b"}, {"none", "a"}} {
		if err := Pin(t.Context(), tx, h); !errors.Is(err, ErrNotHeld) {
			t.Errorf("%v: %v", h, err)
		}
	}
	// Another name of the same table has the same pins.
	noError(t, Pin(t.Context(), tx, held{"k", "a"}, WithSchema("public")))
	release(t, d, "k", "a")
	acquire(t, d, mutex("k", "b"), driver.Busy)
	if err := Pin(t.Context(), tx, held{"k", "a"}, WithTable("none")); err == nil {
		t.Error("no table")
	}
}

// Holders read a number, wait until their lease has expired, and write the number plus one. If
// two holders overlapped, an increment would be lost. Without the pin hundreds are lost.
func TestPin_WhoeverIsLateChangesNothing(t *testing.T) {
	live.Test(t)
	t.Parallel()
	d, server := newStore(t, "")
	boss := admin(t, server.URL())
	exec(t, boss, `CREATE TABLE counter AS SELECT key::text, 0 AS n FROM generate_series(0, 3) AS key`)
	pool, err := pgxpool.New(t.Context(), server.URL()+"&pool_max_conns=20")
	noError(t, err)
	defer pool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var committed, late, expired atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			key := fmt.Sprint(i % 4)
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprint(i, "-", n)
				const ttl = 30 * time.Millisecond
				reply, err := d.Acquire(ctx, brief(key, id, ttl))
				if err != nil || reply.State != driver.Granted {
					time.Sleep(rand.N(10 * time.Millisecond))
					continue
				}
				start := time.Now()
				time.Sleep(rand.N(40 * time.Millisecond))
				switch err := increase(context.WithoutCancel(ctx), pool, held{key, id}); {
				case err == nil:
					committed.Add(1)
					if time.Since(start) > ttl {
						expired.Add(1)
					}
				case errors.Is(err, ErrNotHeld):
					late.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	enough := func() bool { return expired.Load() >= 5 && late.Load() > 0 }
	least := 5 * time.Second
	if testing.Short() {
		least = 2 * time.Second
	}
	for start := time.Now(); time.Since(start) < least || time.Since(start) < time.Minute && !enough(); {
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	n := value[int64](t, boss, `SELECT sum(n) FROM counter`)
	t.Logf("%d commits, of which %d ended after their lease; %d refused", committed.Load(), expired.Load(), late.Load())
	if n != committed.Load() {
		t.Errorf("%d of %d commits were lost", committed.Load()-n, committed.Load())
	}
	if !enough() {
		t.Error("too little happened")
	}
}

// increase reads, waits and writes, like a program that relies on its lock.
func increase(ctx context.Context, pool *pgxpool.Pool, lease Lease) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := Pin(ctx, tx, lease); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT n FROM counter WHERE key = $1`, lease.Key()).Scan(&n); err != nil {
			return err
		}
		time.Sleep(rand.N(40 * time.Millisecond))
		_, err := tx.Exec(ctx, `UPDATE counter SET n = $1 WHERE key = $2`, n+1, lease.Key())
		return err
	})
}
