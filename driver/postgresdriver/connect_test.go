package postgresdriver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// A call that gets no connection fails with the error of its own context, and with
// ErrUnavailable, because its request was not sent.
func TestAcquire_WhoeverGetsNoConnectionIsToldSo(t *testing.T) {
	proxy := postgrestest.Shared(t).Proxy(t)
	proxy.Mute()
	d := openURL(t, proxy.URL()+"&timeout=5s")
	_, err := d.Acquire(within(t, 50*time.Millisecond), mutex("k", "a"))
	proxy.Unmute()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// Otherwise many cancelled calls would keep the store busy with new connections.
func TestAcquire_WhoeverGivesUpCostsNoConnection(t *testing.T) {
	d, server := newStore(t, "&timeout=30s")
	boss := admin(t, server.URL())
	acquire(t, d, mutex("k", "a"), driver.Granted)
	stay := sessionsStay(t, boss)
	lockRow(t, boss, "k")
	for range 3 {
		start := time.Now()
		_, err := d.Acquire(within(t, 50*time.Millisecond), ticket("k", "b"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			live.Late(t, "gave up after %v", took)
		}
	}
	exec(t, boss, `COMMIT`)
	acquire(t, d, ticket("k", "c"), driver.Queued)
	stay()
}

// The first try waits on a connection that no longer answers. The next try does not wait for
// it.
func TestRenew_ATryOnAConnectionThatAnswersNoMoreHoldsUpNoOther(t *testing.T) {
	d, proxy := newStoreBehind(t, "&timeout=60s")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	renewed(within(t, time.Minute), t, d, "k")
	proxy.Strand()
	defer proxy.CutAll() // or Close would wait for it
	if _, err := renew(within(t, 50*time.Millisecond), d, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the server does not answer: %v", err)
	}
	renewed(within(t, 50*time.Second), t, d, "k")
}

// A try at a row that another session has locked waits until the server's lock timeout. If
// that were longer than the try, the tries of one lease would use up all connections.
func TestRenew_TriesAtALockedRowHoldUpNoOther(t *testing.T) {
	d, server := newStore(t, "&timeout=60s")
	for _, key := range []string{"k", "other"} {
		acquire(t, d, mutex(key, "a"), driver.Granted)
		renewed(within(t, time.Minute), t, d, key)
	}
	boss := admin(t, server.URL())
	stay := sessionsStay(t, boss)
	lockRow(t, boss, "k")
	for range 3 * renewConns {
		if _, err := renew(within(t, 50*time.Millisecond), d, "k"); err == nil {
			t.Error("renewed behind the row's lock")
		}
	}
	renewed(within(t, 30*time.Second), t, d, "other")
	exec(t, boss, `ROLLBACK`)
	renewed(within(t, 30*time.Second), t, d, "k")
	stay()
}

// If each call started its own attempt and gave it up, a busy server would never have the table.
func TestAcquire_TheTableIsCreatedHoweverSoonCallsGiveUp(t *testing.T) {
	server := postgrestest.Shared(t)
	boss := admin(t, server.URL())
	d := openURL(t, server.URL()+"&create=true&timeout=200ms")
	exec(t, boss, `SELECT pg_advisory_lock($1)`, d.table.cfg.lockID("create", ""))
	waiting := func() []int {
		t.Helper()
		return numbers(t, boss, `SELECT pid FROM pg_locks JOIN pg_database AS d ON d.oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`)
	}
	ask := func() error {
		_, err := d.Acquire(within(t, 200*time.Millisecond), mutex("k", "a"))
		return err
	}
	eventually(t, func() bool {
		if err := ask(); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("there is no table yet, so the lock is certainly not held: %v", err)
		}
		return len(waiting()) > 0
	})
	first := waiting()
	for range 5 {
		if err := ask(); err == nil {
			t.Error("granted without a table")
		}
	}
	if now := waiting(); len(now) != 1 || !slices.Equal(now, first) {
		t.Errorf("%v create the table, and after more calls %v; want one and the same", first, now)
	}
	exec(t, boss, `SELECT pg_advisory_unlock_all()`)
	eventually(t, func() bool { return ask() == nil })
}

// A role without the right to create finds the table that another role has created while it
// waited.
func TestAcquire_ATableThatAnotherHasCreatedMeanwhileIsUsed(t *testing.T) {
	server := postgrestest.Start(t)
	boss := admin(t, server.URL())
	d := openURL(t, server.URL()+"&create=true")
	exec(t, boss, SQL())
	exec(t, boss, `CREATE ROLE guest; GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold TO guest;
		GRANT USAGE ON SEQUENCE leasehold_tokens TO guest; ALTER ROLE tester SET role = guest`)
	noError(t, d.table.create())
	acquire(t, d, mutex("k", "a"), driver.Granted)
}

// A connection that is made while its call still waits serves the next call. After a connection
// was silent, the pool goes through its idle connections, and does not call the application's
// PrepareConn hook for them.
func TestAcquire_AServerThatLetsNobodyInWithinTheTimeoutIsReached(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for name, hook := range map[string]func(context.Context, *pgx.Conn) (bool, error){
		"without a hook":              nil,
		"a hook that asks the server": func(ctx context.Context, conn *pgx.Conn) (bool, error) { return conn.Ping(ctx) == nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := postgrestest.Shared(t).Proxy(t)
			proxy.Slow(1500 * time.Millisecond)
			cfg, err := pgxpool.ParseConfig(proxy.URL())
			noError(t, err)
			cfg.PrepareConn = hook
			d := warm(t, configured(t, cfg, WithCreate(), WithTimeout(600*time.Millisecond)))
			if made := d.table.pool.conns.Stat().NewConnsCount(); made > mainConns {
				t.Errorf("%d connections had to be made", made)
			}
		})
	}
}

func TestPatience_GrowsWithTheTimeThatNoConnectionHasCome(t *testing.T) {
	p := &patience{least: 2 * time.Second, most: 10 * time.Second}
	start := time.Now()
	for _, c := range []struct{ after, want time.Duration }{
		{0, 2 * time.Second}, {time.Second, 2 * time.Second}, {3 * time.Second, 3 * time.Second}, {time.Hour, 10 * time.Second},
	} {
		if got := p.begin(start.Add(c.after)); got != c.want {
			t.Errorf("after %v: %v, want %v", c.after, got, c.want)
		}
	}
	p.connected()
	if got := p.begin(start.Add(2 * time.Hour)); got != 2*time.Second {
		t.Errorf("after a connection: %v", got)
	}
}

// No caller of List and Sweep stops waiting for them when the context ends, so they must
// return themselves. Close waits for the sweep.
func TestListAndSweep_EndWithTheirContext(t *testing.T) {
	live.Test(t)
	d, server := newStore(t, "&timeout=60s")
	boss := admin(t, server.URL())
	exec(t, boss, `BEGIN`)
	exec(t, boss, `LOCK TABLE leasehold`)
	for name, call := range map[string]func(context.Context) error{
		"list": func(ctx context.Context) error {
			_, _, err := d.List(ctx, "", "")
			return err
		},
		"sweep": func(ctx context.Context) error {
			_, err := d.table.Sweep(ctx, 1)
			return err
		},
	} {
		start := time.Now()
		if err := call(within(t, 50*time.Millisecond)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if took := time.Since(start); took > 30*time.Second {
			live.Late(t, "%s: it ended after %v", name, took)
		}
	}
}
