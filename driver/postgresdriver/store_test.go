package postgresdriver

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// asText makes pgx send statements as text, so that a proxy can recognize them.
const asText = "&default_query_exec_mode=exec"

// openURL opens a store, with a timeout that is long enough for a busy machine unless the URL
// has one.
func openURL(t testing.TB, url string) *Driver {
	t.Helper()
	if !strings.Contains(url, "timeout=") {
		url += "&timeout=20s"
	}
	d, err := Open(url)
	noError(t, err)
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

// newStore returns a store in a database of its own, and the server. params belong to the URL.
func newStore(t *testing.T, params string) (*Driver, *postgrestest.Server) {
	t.Helper()
	server := postgrestest.Shared(t)
	return warm(t, openURL(t, server.URL()+"&create=true"+params)), server
}

// newStoreBehind is newStore with a proxy before the server.
func newStoreBehind(t *testing.T, params string) (*Driver, *postgrestest.Proxy) {
	t.Helper()
	proxy := postgrestest.Shared(t).Proxy(t)
	return warm(t, openURL(t, proxy.URL()+"&create=true"+params)), proxy
}

// ticket asks for a place in the queue, which has to be written.
func ticket(key, id string) driver.Request {
	req := mutex(key, id)
	req.TicketTTL = time.Minute
	return req
}

func reader(key, id string) driver.Request {
	req := mutex(key, id)
	req.Mode = driver.Shared
	return req
}

var (
	mutex      = ask.Mutex
	noError    = ask.NoError
	acquire    = ask.Acquire
	release    = ask.Release
	holds      = ask.Holds
	eventually = await.Until
	findings   = ask.Findings
	finds      = ask.Finds
)

var renewals atomic.Int64

// renew renews the lease "a" of a key, each time for a second more: the store only reads a record
// that already ends late enough.
func renew(ctx context.Context, d *Driver, key string) (state driver.State, err error) {
	ttl := time.Minute + time.Duration(renewals.Add(1))*time.Second
	d.Renew(ctx, []driver.Ref{{Key: key, ID: "a", TTL: ttl}}, func(_ int, reply driver.Reply, e error) { state, err = reply.State, e })
	return state, err
}

// renewed fails the test unless the lease "a" of a key is renewed.
func renewed(ctx context.Context, t *testing.T, d *Driver, key string) {
	t.Helper()
	if got, err := renew(ctx, d, key); err != nil || got != driver.Granted {
		t.Errorf("renewal of %q: state %v, %v", key, got, err)
	}
}

// within returns a context that ends after the time, or with the test.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// watch returns a subscription with an address.
func watch(t *testing.T, d *Driver, f func(driver.Hint)) driver.Subscription {
	t.Helper()
	sub := watchSoon(t, d, f)
	eventually(t, func() bool { return sub.Address() != "" })
	return sub
}

// watchSoon returns a subscription that may have no address yet.
func watchSoon(t *testing.T, d *Driver, f func(driver.Hint)) driver.Subscription {
	t.Helper()
	sub, err := d.Watch(f)
	noError(t, err)
	t.Cleanup(func() { _ = sub.Close() })
	return sub
}

func unheard(driver.Hint) {}

// between runs an update of the store, and calls do while the row is locked.
func between(ctx context.Context, d *Driver, key string, do func()) error {
	_, err := d.table.Transact(ctx, []roomdriver.Item{{Key: key}}, func(_ int, found roomdriver.Found) roomdriver.Change {
		do()
		return roomdriver.Change{Record: found.Record, Messages: []roomdriver.Message{{Address: "nobody", Body: "x"}}}
	})
	return err
}

// admin returns a connection of the superuser.
func admin(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(context.Background(), sql, args...)
	noError(t, err)
}

// value returns the only value of the answer to a query.
func value[T any](t *testing.T, conn *pgx.Conn, sql string) (v T) {
	t.Helper()
	noError(t, conn.QueryRow(context.Background(), sql).Scan(&v))
	return v
}

// lockRow locks the row of a key in a transaction of the connection.
func lockRow(t *testing.T, conn *pgx.Conn, key string) {
	t.Helper()
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM leasehold WHERE key = '`+key+`' FOR UPDATE`)
}

// sessions returns the processes of the server that serve the store.
func sessions(t *testing.T, boss *pgx.Conn) []int {
	t.Helper()
	return numbers(t, boss, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY pid`)
}

func numbers(t *testing.T, boss *pgx.Conn, sql string) []int {
	t.Helper()
	rows, _ := boss.Query(t.Context(), sql)
	all, err := pgx.CollectRows(rows, pgx.RowTo[int])
	noError(t, err)
	return all
}

// sessionsStay returns a function that fails the test if a present session has ended. There may
// be new sessions.
func sessionsStay(t *testing.T, boss *pgx.Conn) func() {
	t.Helper()
	before := sessions(t, boss)
	return func() {
		t.Helper()
		after := sessions(t, boss)
		for _, pid := range before {
			if !slices.Contains(after, pid) {
				t.Errorf("sessions %v, and then %v", before, after)
			}
		}
	}
}

// hostOf returns the host and the port of a URL.
func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	noError(t, err)
	return u.Host
}

// as returns the URL for another user.
func as(user, address string) string { return strings.Replace(address, "tester@", user+"@", 1) }
