package mysqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// Texts by which a proxy recognizes statements.
const (
	look   = "SELECT TIMESTAMPDIFF"
	insert = "INSERT INTO `leasehold` "
	update = "UPDATE `leasehold` "
)

func newStoreBehind(t *testing.T) (*Driver, *mysqltest.Proxy) {
	t.Helper()
	proxy := mysqltest.Shared(t).Proxy(t)
	return warm(t, openURL(t, proxy.URL()+"create=true")), proxy
}

func TestCuts_ErrorsReportAPossibleEffect(t *testing.T) {
	d, proxy := newStoreBehind(t)
	before := func(text string) func() *tcpproxy.Cut { return func() *tcpproxy.Cut { return proxy.CutBefore(text) } }
	after := func(text string) func() *tcpproxy.Cut { return func() *tcpproxy.Cut { return proxy.CutAfter(text) } }
	ask.Cuts{Look: before(look), Make: before(insert), Made: after(insert), Released: after(update)}.Play(t, d, d)
}

// Connections that the server or a router has closed while they were idle cost no call.
func TestAcquire_IdleConnectionsThatWereCutCostNothing(t *testing.T) {
	d, proxy := newStoreBehind(t)
	for range 3 {
		proxy.CutAll()
		eventually(t, func() bool { // the end of a connection may be on its way
			_, err := d.Acquire(t.Context(), mutex("k", "a"))
			return err == nil
		})
		release(t, d, "k", "a")
	}
}

// Another session keeps the row locked, so the server gives the statement up. A change that
// meets a locked row has certainly not happened, unless it was cut off.
func TestAcquire_ALockedRowIsDefiniteAndCostsNoConnection(t *testing.T) {
	d, server := newStore(t, "&timeout=3s")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	release(t, d, "k", "a")
	tx, err := server.DB(t).BeginTx(t.Context(), nil)
	noError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT record FROM leasehold WHERE name = 'k' FOR UPDATE")
	noError(t, err)
	_, err = d.Acquire(t.Context(), mutex("k", "b"))
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("%v", err)
	}
	acquire(t, d, mutex("another", "b"), driver.Granted)
	noError(t, tx.Rollback())
	acquire(t, d, mutex("k", "b"), driver.Granted)
}

// A backup may lock all tables for minutes. The server notices only afterwards that the client of a
// waiting statement has gone, so the statements would pile up to max_connections.
func TestAcquire_ALockedTableLeavesNoStatementsInTheServer(t *testing.T) {
	server := mysqltest.Start(t)
	d := warm(t, openURL(t, server.URL()+"create=true&timeout=3s"))
	acquire(t, d, mutex("k", "a"), driver.Granted)
	conn, err := server.DB(t).Conn(t.Context())
	noError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	noError(t, err)
	if _, err := d.Acquire(t.Context(), mutex("new", "b")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	eventually(t, func() bool { // a statement is listed for a moment after its answer
		var n int
		const waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT%'"
		return conn.QueryRowContext(t.Context(), waiting).Scan(&n) == nil && n == 0
	})
	_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
	noError(t, err)
	release(t, d, "k", "a")
}

// The pool makes connections for calls that wait without the time limits of these calls.
func TestOpen_AConnectionThatIsNeverAnsweredCostsTheTimeout(t *testing.T) {
	d, proxy := newStoreBehind(t)
	_ = d.Close()
	d = openURL(t, proxy.URL()+"timeout=300ms")
	proxy.Mute()
	done := make(chan bool)
	for i := range 3 * connections {
		go func() {
			_, err := d.Acquire(t.Context(), mutex(fmt.Sprint(i), "a"))
			done <- err == nil
		}()
	}
	for range 3 * connections {
		<-done
	}
	proxy.Strand() // these connections stay silent
	proxy.Unmute()
	start := time.Now()
	eventually(t, func() bool {
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		return err == nil
	})
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// A firewall that forgets connections drops their packets.
func TestRenew_DeadIdleConnectionsCostOneTimeout(t *testing.T) {
	d, proxy := newStoreBehind(t)
	_ = d.Close()
	d = warm(t, openURL(t, proxy.URL()+"timeout=2s"))
	acquire(t, d, mutex("k", "a"), driver.Granted)
	var idle []*sql.Conn
	for range connections {
		conn, err := d.table.db.Conn(t.Context())
		noError(t, err)
		idle = append(idle, conn)
	}
	for _, conn := range idle {
		noError(t, conn.Close())
	}
	proxy.Strand()
	if _, err := renew(t.Context(), d, "k"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if state, err := renew(t.Context(), d, "k"); err != nil || state != driver.Granted {
		t.Errorf("%v, %v", state, err)
	}
}

// Neither a caller nor Close waits for a silent server, for which the time limit is a minute.
func TestClose_DoesNotWaitForASilentServer(t *testing.T) {
	d, proxy := newStoreBehind(t)
	_ = d.Close()
	d = warm(t, openURL(t, proxy.URL()+"timeout=1m&poll=1ms"))
	_, err := d.Watch(func(driver.Hint) {})
	noError(t, err)
	<-proxy.Hold("SELECT id").Fired() // a look for messages is under way
	proxy.Mute()
	defer proxy.Unmute()
	for what, call := range map[string]func(ctx context.Context) error{
		"list":  func(ctx context.Context) error { _, _, err := d.List(ctx, "", ""); return err },
		"check": func(ctx context.Context) error { _, err := d.Check(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		if err := call(ctx); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s took %v", what, took)
		}
	}
	start := time.Now()
	_ = d.Close()
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}

// A statement may reach the server after its caller has gone.
func TestSwap_AStatementThatComesTooLateHasNoEffect(t *testing.T) {
	d, _ := newStore(t, "")
	for _, key := range []string{"new", "warm-up"} {
		before, version, now, err := d.table.Load(t.Context(), key)
		noError(t, err)
		_, written, exists := strings.Cut(version, " ")
		version = fmt.Sprint(now.Add(-d.table.cfg.timeout - time.Millisecond).UnixMicro())
		if exists {
			version += " " + written
		}
		if ok, err := d.table.Swap(t.Context(), key, version, append([]byte{1, 0x7f}, make([]byte, 7)...)); ok || err != nil {
			t.Errorf("%s: %t, %v", key, ok, err)
		}
		if after, _, err := d.table.Read(t.Context(), key); err != nil || string(after) != string(before) {
			t.Errorf("%s: the late statement had an effect; %v", key, err)
		}
	}
}
