package postgresdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// asText makes pgx send statements as text, so that a proxy can recognize them.
const asText = "&default_query_exec_mode=exec"

// Texts by which a proxy recognizes a statement that changes a record in one step, and a
// statement that only reads.
const (
	change = "WITH done AS"
	look   = "SELECT (SELECT record"
)

// openURL opens a store, with a timeout that is long enough for a busy machine unless the URL
// has one.
func openURL(t *testing.T, url string) *Driver {
	t.Helper()
	if !strings.Contains(url, "timeout=") {
		url += "&timeout=20s"
	}
	d, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// warm waits until the table exists and the driver has a connection, and returns the driver.
func warm(t *testing.T, d *Driver) *Driver {
	t.Helper()
	// Its timeout may be short, and the machine busy.
	eventually(t, func() bool {
		_, err := d.Acquire(t.Context(), mutex("warm-up", "w"))
		return err == nil
	})
	return d
}

// ticket asks for a place in the queue, which has to be written.
func ticket(key, id string) driver.Request {
	req := mutex(key, id)
	req.TicketTTL = time.Minute
	return req
}

func mutex(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: time.Minute, ConfirmWindow: time.Second}
}

// admin returns a connection of the superuser.
func admin(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// holds reports whether the lease id is in the table.
func holds(t *testing.T, d *Driver, key, id string) bool {
	t.Helper()
	snap, err := d.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(snap.Holders) == 1 && snap.Holders[0].ID == id
}

func TestAcquire_ACutBeforeTheChangeIsCertainlyNothing(t *testing.T) {
	server := postgrestest.Shared(t)
	proxy := server.Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&create=true"+asText))
	cut := proxy.CutBefore(look)
	_, err := d.Acquire(t.Context(), mutex("k", "a"))
	<-cut.Fired()
	if !errors.Is(err, driver.ErrUnavailable) || holds(t, d, "k", "a") {
		t.Errorf("%v", err)
	}
}

func TestAcquire_ACutAroundTheChangeIsUnknownAndAskedForAgain(t *testing.T) {
	server := postgrestest.Shared(t)
	proxy := server.Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&create=true"+asText))
	for key, cut := range map[string]func(string) *postgrestest.Cut{"before": proxy.CutBefore, "after": proxy.CutAfter} {
		done := cut(change)
		_, err := d.Acquire(t.Context(), mutex(key, "a"))
		<-done.Fired()
		if err == nil || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s the change: %v; the outcome must be unknown", key, err)
		}
		if got := holds(t, d, key, "a"); got != (key == "after") {
			t.Errorf("%s the change: the lease is there: %t", key, got)
		}
		again, err := d.Acquire(t.Context(), mutex(key, "a"))
		if err != nil || again.State != driver.Granted || again.Replayed != (key == "after") {
			t.Errorf("%s the change, asked again: %+v, %v", key, again, err)
		}
	}
}

func TestRelease_ACutAfterTheChangeIsUnknownAndTheNextHolderSurvives(t *testing.T) {
	server := postgrestest.Shared(t)
	proxy := server.Proxy(t)
	d := warm(t, openURL(t, proxy.URL()+"&create=true"+asText))
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	cut := proxy.CutAfter(change)
	_, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"})
	<-cut.Fired()
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := d.Acquire(t.Context(), mutex("k", "b")); err != nil {
		t.Fatal(err)
	}
	if reply, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil || reply.State != driver.Gone {
		t.Errorf("%+v, %v", reply, err)
	}
	if !holds(t, d, "k", "b") {
		t.Error("the next holder has lost its lease")
	}
}

// between runs an update of the store, and calls do while the row is locked.
func between(ctx context.Context, d *Driver, key string, do func()) error {
	_, err := d.table.Transact(ctx, []roomdriver.Item{{Key: key}}, func(_ int, found roomdriver.Found) roomdriver.Change {
		do()
		return roomdriver.Change{Record: found.Record, Messages: []roomdriver.Message{{Address: "nobody", Body: "x"}}}
	})
	return err
}

func TestTransact_ABackendThatIsKilledBeforeTheCommitLeavesTheOutcomeUnknown(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	boss := admin(t, server.URL())
	err := between(t.Context(), d, "warm-up", func() {
		exec(t, boss, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
	})
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v; the outcome of a session that was ended must be unknown", err)
	}
	if reply, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil || reply.State != driver.Granted {
		t.Errorf("the next call: %+v, %v", reply, err)
	}
}

func TestTransact_AStatementThatTheServerRefusesIsCertainlyNothing(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	exec(t, admin(t, server.URL()), `ALTER TABLE leasehold ADD CHECK (key <> 'k')`)
	_, err := d.Acquire(t.Context(), mutex("k", "a"))
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestTransact_AProcessThatIsStoppedKeepsTheRowNoLongerThanTheTimeout(t *testing.T) {
	live.Test(t)
	server := postgrestest.Shared(t)
	stopped := warm(t, openURL(t, server.URL()+"&create=true&timeout=400ms"))
	other := openURL(t, server.URL()+"&timeout=30s")
	start := time.Now()
	err := between(context.Background(), stopped, "warm-up", func() {
		reply, err := other.Acquire(context.Background(), ticket("warm-up", "b"))
		if err != nil || reply.State != driver.Queued {
			t.Errorf("%+v, %v", reply, err)
		}
	})
	if err == nil {
		t.Error("the transaction that was stopped has committed")
	}
	if took := time.Since(start); took < 300*time.Millisecond || took > 20*time.Second {
		live.Late(t, "the row was kept for %v", took)
	}
}

func TestAcquire_ARowThatSomebodyElseLocksIsSaidAndHoldsUpNobodyElse(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=3s")) // another lock must be granted within it
	boss := admin(t, server.URL())
	exec(t, boss, `BEGIN`)
	exec(t, boss, `SELECT FROM leasehold WHERE key = 'warm-up' FOR UPDATE`)
	stuck := make(chan error, 20)
	for range cap(stuck) {
		go func() {
			_, err := d.Acquire(context.Background(), ticket("warm-up", "b"))
			stuck <- err
		}()
	}
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Errorf("another lock: %v", err)
	}
	for range cap(stuck) {
		if err := <-stuck; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	}
}

// The server waits for a replica that is away. If the wait is cancelled, it acknowledges the
// commit with a warning.
func TestAcquire_ACommitThatNoReplicaHasIsNoGrant(t *testing.T) {
	server := postgrestest.Start(t, "synchronous_commit=on", "synchronous_standby_names=nobody")
	warm(t, openURL(t, server.URL()+"&create=true&synchronous_commit=local"))
	d := openURL(t, server.URL()+"&timeout=20s")
	boss := admin(t, server.URL())
	done := make(chan error, 1)
	go func() {
		_, err := d.Acquire(context.Background(), mutex("k", "a"))
		done <- err
	}()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && len(done) == 0; time.Sleep(10 * time.Millisecond) {
		exec(t, boss, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	}
	err := <-done
	if !errors.Is(err, driver.ErrNotReplicated) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestWatch_AConnectionThatIsKilledListensAgainAndEverybodyAsks(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	hints := make(chan driver.Hint, 100)
	sub, err := d.Watch(func(h driver.Hint) { hints <- h })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	boss := admin(t, server.URL())
	for i := range 3 {
		select {
		case h := <-hints:
			if h.Kind != driver.HintResync {
				t.Errorf("%+v", h)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no word after %d connections", i)
		}
		eventually(t, func() bool { return sub.Address() != "" })
		exec(t, boss, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to that")
		}
	}
}

func TestAcquire_TokensRiseAlthoughRowsWereDeletedOrAreOld(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	boss := admin(t, server.URL())
	last := int64(0)
	grant := func(what string) {
		t.Helper()
		reply, err := d.Acquire(t.Context(), mutex("k", "a"))
		if err != nil || reply.State != driver.Granted || reply.Token <= last {
			t.Errorf("%s: %+v, %v; the token before was %d", what, reply, err, last)
		}
		last = reply.Token
		if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil {
			t.Error(err)
		}
	}
	grant("first")
	exec(t, boss, `CREATE TABLE backup AS TABLE leasehold`)
	grant("second")
	exec(t, boss, `DELETE FROM leasehold`)
	grant("deleted")
	exec(t, boss, `DELETE FROM leasehold`)
	exec(t, boss, `INSERT INTO leasehold TABLE backup`)
	grant("restored from an old backup")
	exec(t, boss, `DROP TABLE leasehold`)
	grant("dropped")
}

func TestSQL_MakesTheTableThatIsUsed(t *testing.T) {
	server := postgrestest.Shared(t)
	boss := admin(t, server.URL())
	for range 2 {
		exec(t, boss, SQL(WithSchema(`odd "schema"`), WithTable("Locks; DROP")))
	}
	d := warm(t, openURL(t, server.URL()+`&schema=odd+%22schema%22&table=Locks%3B+DROP`))
	if !holds(t, d, "warm-up", "w") {
		t.Error("not there")
	}
	if text := SQL(WithTable("")); !strings.HasPrefix(text, "-- table name") {
		t.Errorf("%q", text)
	}
}

// Renewals change no indexed column, and the table's pages are half full. So a renewal does
// not write the index, and later renewals remove the old row versions.
func TestRenew_StaysOnItsPages(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	var refs []driver.Ref
	for i := range 50 {
		key := fmt.Sprint("k", i)
		if _, err := d.Acquire(t.Context(), mutex(key, "a")); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, driver.Ref{Key: key, ID: "a", TTL: time.Minute})
	}
	const rounds = 40
	for range rounds {
		time.Sleep(2 * time.Millisecond) // times are counted in milliseconds
		d.Renew(t.Context(), refs, func(_ int, reply driver.Reply, err error) {
			if err != nil || reply.State != driver.Granted {
				t.Errorf("%+v, %v", reply, err)
			}
		})
	}
	if err := d.Close(); err != nil { // a session reports its statistics when it ends
		t.Error(err)
	}
	boss := admin(t, server.URL())
	var updates, hot, size int
	eventually(t, func() bool {
		if err := boss.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd, pg_relation_size(relid) / 8192
			FROM pg_stat_user_tables`).Scan(&updates, &hot, &size); err != nil {
			t.Fatal(err)
		}
		return updates >= rounds*len(refs)*9/10
	})
	t.Logf("%d updates, %d of them HOT, %d pages", updates, hot, size)
	if hot < updates*9/10 || size > 20 {
		t.Errorf("%d of %d updates are HOT, the table has %d pages", hot, updates, size)
	}
}
