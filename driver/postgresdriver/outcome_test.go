package postgresdriver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// Texts by which a proxy recognizes a statement that changes a record in one step, and a
// statement that only reads.
const (
	change = "RETURNING CASE"
	read   = "SELECT (SELECT record"
)

func TestCuts_ErrorsReportAPossibleEffect(t *testing.T) {
	_, proxy := newStoreBehind(t, asText)
	d := openURL(t, proxy.URL()+asText) // reads the server's clock first
	before := func(text string) func() *tcpproxy.Cut { return func() *tcpproxy.Cut { return proxy.CutBefore(text) } }
	after := func() *tcpproxy.Cut { return proxy.CutAfter(change) }
	ask.Cuts{Look: before(read), Make: before(change), Made: after, Released: after}.Play(t, d, d)
}

// TestCuts_PartOfAnAnswerLeavesTheOutcomeUnknown cuts answers before the tag of each statement. The
// server has committed.
func TestCuts_PartOfAnAnswerLeavesTheOutcomeUnknown(t *testing.T) {
	direct, proxy := newStoreBehind(t, "")
	d := warm(t, openURL(t, proxy.URL()+asText))
	unknown := func(what, tag string, call func() error) {
		acquire(t, d, mutex(what+tag, "a"), driver.Granted) // connects again
		cut := proxy.CutWithin("COMMIT\x00", tag)           // not the isolation level
		if err := call(); err == nil || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s, cut before %s: %v, want an error that leaves the outcome unknown", what, tag, err)
		}
		select {
		case <-cut.Fired():
		default:
			t.Errorf("%s: the answer has no %s", what, tag)
		}
	}
	for _, tag := range []string{"BEGIN", "SELECT", "INSERT", "COMMIT"} {
		unknown("acquire", tag, func() error {
			_, err := d.Acquire(t.Context(), mutex(tag, "a"))
			return err
		})
		if !holds(t, direct, tag, "a") {
			t.Errorf("cut before %s: the lease is not in the store", tag)
		}
	}
	for _, tag := range []string{"UPDATE", "COMMIT"} {
		unknown("renew", tag, func() error {
			_, err := renew(t.Context(), d, "COMMIT")
			return err
		})
	}
	unknown("transaction", "COMMIT", func() error { return between(t.Context(), d, "COMMIT", func() {}) })
}

func TestTransact_ABackendThatIsKilledBeforeTheCommitLeavesTheOutcomeUnknown(t *testing.T) {
	d, server := newStore(t, "")
	boss := admin(t, server.URL())
	err := between(t.Context(), d, "warm-up", func() {
		exec(t, boss, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
	})
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v; the outcome of a session that was ended must be unknown", err)
	}
	acquire(t, d, mutex("k", "a"), driver.Granted)
}

func TestTransact_AStatementThatTheServerRefusesIsCertainlyNothing(t *testing.T) {
	d, server := newStore(t, "")
	exec(t, admin(t, server.URL()), `ALTER TABLE leasehold ADD CHECK (key <> 'k')`)
	_, err := d.Acquire(t.Context(), mutex("k", "a"))
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestTransact_AProcessThatIsStoppedKeepsTheRowNoLongerThanTheTimeout(t *testing.T) {
	live.Test(t)
	stopped, server := newStore(t, "&timeout=400ms")
	other := openURL(t, server.URL()+"&timeout=30s")
	start := time.Now()
	err := between(context.Background(), stopped, "warm-up", func() { acquire(t, other, ticket("warm-up", "b"), driver.Queued) })
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
	d, server := newStore(t, "&timeout=3s") // another lock must be granted within it
	lockRow(t, admin(t, server.URL()), "warm-up")
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
	d, server := newStore(t, "")
	hints := make(chan driver.Hint, 100)
	sub := watchSoon(t, d, func(h driver.Hint) { hints <- h })
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

// Renewals change no indexed column, and the table's pages are half full. So a renewal does
// not write the index, and later renewals remove the old row versions.
func TestRenew_StaysOnItsPages(t *testing.T) {
	d, server := newStore(t, "")
	var refs []driver.Ref
	for i := range 50 {
		key := fmt.Sprint("k", i)
		acquire(t, d, mutex(key, "a"), driver.Granted)
		refs = append(refs, driver.Ref{Key: key, ID: "a", TTL: time.Minute})
	}
	const rounds = 40
	for range rounds {
		time.Sleep(2 * time.Millisecond) // times are counted in milliseconds
		ask.Renew(t, d, driver.Granted, refs...)
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
	if hot < updates*9/10 || size > 20 {
		t.Errorf("%d of %d updates are HOT, the table has %d pages", hot, updates, size)
	}
}
