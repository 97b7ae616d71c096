package postgresdriver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// impatient asks for a lock, and gives up soon.
func impatient(d *Driver, req driver.Request, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := d.Acquire(ctx, req)
	return err
}

// A call that gets no connection fails with the error of its own context, and with
// ErrUnavailable, because its request was not sent.
func TestAcquire_WhoeverGetsNoConnectionIsToldSo(t *testing.T) {
	server := postgrestest.Shared(t)
	proxy := server.Proxy(t)
	proxy.Mute()
	d := openURL(t, proxy.URL()+"&timeout=5s")
	err := impatient(d, mutex("k", "a"), 50*time.Millisecond)
	proxy.Unmute()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// sessions returns the processes of the server that serve the store.
func sessions(t *testing.T, boss *pgx.Conn) []int {
	t.Helper()
	rows, err := boss.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(pids)
	return pids
}

// Otherwise many cancelled calls would keep the store busy with new connections.
func TestAcquire_WhoeverGivesUpCostsNoConnection(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=30s"))
	boss := admin(t, server.URL())
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	before := sessions(t, boss)
	exec(t, boss, `BEGIN`)
	exec(t, boss, `SELECT FROM leasehold WHERE key = 'k' FOR UPDATE`)
	for range 3 {
		start := time.Now()
		err := impatient(d, ticket("k", "b"), 50*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			live.Late(t, "gave up after %v", took)
		}
	}
	exec(t, boss, `COMMIT`)
	if reply, err := d.Acquire(t.Context(), ticket("k", "c")); err != nil || reply.State != driver.Queued {
		t.Errorf("%+v, %v", reply, err)
	}
	after := sessions(t, boss)
	for _, pid := range before { // there may be new sessions
		if !slices.Contains(after, pid) {
			t.Errorf("sessions %v, and then %v", before, after)
		}
	}
}

// The first try waits on a connection that no longer answers. The next try does not wait for
// it.
func TestRenew_ATryOnAConnectionThatAnswersNoMoreHoldsUpNoOther(t *testing.T) {
	proxy := postgrestest.Shared(t).Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&create=true&timeout=60s"))
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	renew := func(patience time.Duration) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		d.Renew(ctx, []driver.Ref{{Key: "k", ID: "a", TTL: time.Hour}}, func(_ int, _ driver.Reply, e error) { err = e })
		return err
	}
	if err := renew(time.Minute); err != nil {
		t.Fatal(err)
	}
	proxy.Strand()
	defer proxy.CutAll() // or Close would wait for it
	if err := renew(50 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the server does not answer: %v", err)
	}
	start := time.Now()
	if err := renew(50 * time.Second); err != nil {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// A try at a row that another session has locked waits until the server's lock timeout. If
// that were longer than the try, the tries of one lease would use up all connections.
func TestRenew_TriesAtALockedRowHoldUpNoOther(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=60s"))
	renew := func(key string, patience time.Duration) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		d.Renew(ctx, []driver.Ref{{Key: key, ID: "a", TTL: time.Hour}}, func(_ int, _ driver.Reply, e error) { err = e })
		return err
	}
	for _, key := range []string{"k", "other"} {
		if _, err := d.Acquire(t.Context(), mutex(key, "a")); err != nil {
			t.Fatal(err)
		}
		if err := renew(key, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	boss := admin(t, server.URL())
	before := sessions(t, boss)
	exec(t, boss, `BEGIN`)
	exec(t, boss, `SELECT FROM leasehold WHERE key = 'k' FOR UPDATE`)
	for range 3 * renewConns {
		if err := renew("k", 50*time.Millisecond); err == nil {
			t.Error("renewed behind the row's lock")
		}
	}
	if err := renew("other", 30*time.Second); err != nil {
		t.Errorf("another lease: %v", err)
	}
	exec(t, boss, `ROLLBACK`)
	if err := renew("k", 30*time.Second); err != nil {
		t.Errorf("after the row's lock: %v", err)
	}
	after := sessions(t, boss)
	for _, pid := range before { // there may be new sessions
		if !slices.Contains(after, pid) {
			t.Errorf("sessions %v, and then %v", before, after)
		}
	}
}

// If each call started its own attempt and gave it up, a busy server would never have the table.
func TestAcquire_TheTableIsCreatedHoweverSoonCallsGiveUp(t *testing.T) {
	server := postgrestest.Shared(t)
	boss := admin(t, server.URL())
	d := openURL(t, server.URL()+"&create=true&timeout=200ms")
	exec(t, boss, `SELECT pg_advisory_lock($1)`, d.table.cfg.lockID("create", ""))
	waiting := func() (pids []int) {
		t.Helper()
		rows, err := boss.Query(t.Context(), `SELECT pid FROM pg_locks JOIN pg_database AS d ON d.oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`)
		if err == nil {
			pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	ask := func() error { return impatient(d, mutex("k", "a"), 200*time.Millisecond) }
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
	exec(t, boss, `CREATE ROLE guest; GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold TO guest; ALTER ROLE tester SET role = guest`)
	if err := d.table.create(); err != nil {
		t.Error(err)
	}
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Error(err)
	}
}

func TestAcquire_AServerThatLetsNobodyInWithinTheTimeoutIsReached(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := postgrestest.Shared(t)
	proxy := server.Proxy(t)
	proxy.Slow(1500 * time.Millisecond)
	d := openURL(t, proxy.URL()+"&create=true&timeout=600ms")
	eventually(t, func() bool {
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		return err == nil
	})
	// A connection that is made while its call still waits serves the next call.
	if made := d.table.pool.conns.Stat().NewConnsCount(); made > mainConns {
		t.Errorf("%d connections had to be made", made)
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
