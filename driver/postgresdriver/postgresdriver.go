// Package postgresdriver keeps locks in a table of PostgreSQL 14 or later, for
// programs that have such a database anyway. It knows every kind of lock.
//
//	pool, err := pgxpool.New(ctx, "postgres://app@db1/app")
//	…
//	store, err := postgresdriver.New(pool, postgresdriver.WithCreate())
//	…
//	client, err := leasehold.New(store)
//
// # How it uses the database
//
// Every lock in use is one row. A verb is one round trip if this process was the last
// to write the row, and mostly two otherwise: a conditional statement, in a transaction
// of its own, that replaces what was read. Where others are always faster, the row is
// locked, read with the server's clock, and written. Nothing is held between two verbs,
// neither a transaction nor an advisory lock nor a session, so a pooler in transaction
// mode may stand between ([WithListen] then tells where to listen; otherwise waiters ask
// from time to time, and holders learn of a break when they renew). What many goroutines ask of one lock at the same time is one
// transaction, and a thousand leases are renewed by four, of a few statements each.
//
// Updates are HOT as long as a page has room: no column that changes has an index,
// and half of each page is left free. What vacuum finds are the rows of names that
// were used once, which are deleted an hour after their last token.
//
// Waiters of other processes are woken by NOTIFY, in the transaction that gives rise
// to it; commits that notify wait for each other in PostgreSQL, so nothing is sent to
// oneself. All who use the table are told that a lease was broken. Each process that
// waits, or has held a lease for a second, has one connection that listens.
//
// # Connections
//
// A store has a pool of its own, with the settings of the pool that it was made from. One
// waiting or holding call needs one connection. The pool grows if calls come at the same
// time: to eight connections, and to twelve for renewals, which so never wait for the
// application. A connection that is idle for pool_max_conn_idle_time (30 min) is closed, and
// the one that listens is given up if the server takes no other. While the server takes no more connections, or is away, calls share
// those that there are, renewals first, and one call at a time tries to make another: after
// 25 to 50 ms, and twice as long after each refusal, up to 1 s. A connection to a server that
// turns out to be a read-only replica is closed, so that a name that leads to another server
// is looked up again. A call whose context ends returns soon, but what it has sent is not
// cut off, since that would cost the connection. Each transaction sets
// statement_timeout, lock_timeout and idle_in_transaction_session_timeout for itself
// ([WithTimeout]). A process that is stopped within a transaction therefore keeps others
// from that lock for as long at most.
//
// A program that uses package database/sql opens the store by the URL of its database.
// The store cannot share the connections of a sql.DB: that knows neither pipelines, which
// make a verb one round trip, nor LISTEN.
//
// # What the server is trusted with
//
// An acknowledged commit must survive: with synchronous_commit off, or fsync off, a
// crash of the server forgets the last locks, and a failover to a replica does so
// unless it is synchronous (synchronous_standby_names, and synchronous_commit on or
// higher). A forgotten lock may be granted again while its holder still works; the
// token tells the two apart. Tokens begin with the server's clock in microseconds and
// rise with it, so they rise also over a restored backup, unless the clock is stepped
// back behind what was given since.
//
// # Rights
//
// The role needs USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on the
// table, nothing else. The role that creates the table needs CREATE on the schema;
// [SQL] is what it executes.
package postgresdriver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// Driver is a store in a table, with every kind of lock. It is made by [New] or [Open], and is
// safe for concurrent use. It has the methods of [driver.Driver], [driver.Watcher],
// [driver.Glancer], [driver.Breaker], [driver.Checker] and [driver.Marker].
//
// An error of a grant matches [driver.ErrNotReplicated] if the commit did not reach the
// synchronous replicas. Watch uses LISTEN; its address is empty until the connection has
// received a message of its own, which never happens behind a pooler in transaction mode
// without [WithListen]. Glance costs as much as Inspect. Close closes the connections that the
// driver has made, but not the pool that was given to [New].
type Driver struct {
	*rooms
	table *table
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil) // and so Inspector
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
	_ driver.Marker  = (*Driver)(nil)
)

// Renew implements [driver.Driver]: it renews up to 256 locks in one transaction, on any
// connection.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(i int, reply driver.Reply, err error)) {
	d.rooms.Renew(context.WithValue(ctx, urgent{}, renewing), refs, each)
}

// Release implements [driver.Driver]. Releases get the next free connection before other calls:
// behind calls that wait for locks, each release would be late.
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return d.rooms.Release(context.WithValue(ctx, urgent{}, hurried), ref)
}

// New returns a store in the database of a pool. It uses the pool's settings and
// hooks for connections of its own; the pool may be closed before. Nothing is sent.
// An error matches [driver.ErrInvalid].
func New(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	return open(pool.Config(), opts)
}

// Open returns a store in the database that a URL names:
//
//	postgres://user:password@host:5432/database?sslmode=verify-full&sslrootcert=ca.pem
//	postgres://h1,h2/database?target_session_attrs=read-write
//
// Parameters are those of pgx, of libpq, of the server (as synchronous_commit=on), and
// the options of this package: schema, table, create=true, timeout=2s, listen (a URL,
// percent-encoded). Nothing is sent. An error matches [driver.ErrInvalid], and has no
// password in it.
func Open(url string, opts ...Option) (*Driver, error) {
	rest, own, err := split(url)
	if err != nil {
		return nil, fmt.Errorf("postgresdriver: %w", storeurl.Invalid(url, err))
	}
	cfg, err := pgxpool.ParseConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("postgresdriver: %w", storeurl.Invalid(url, unquoted(err)))
	}
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { // files are replaced: passfile, sslcert, sslkey
		again, err := pgxpool.ParseConfig(rest)
		if err != nil {
			return unquoted(err)
		}
		c.Password, c.TLSConfig, c.Fallbacks = again.ConnConfig.Password, again.ConnConfig.TLSConfig, again.ConnConfig.Fallbacks
		return nil
	}
	ofFile := func(o *options) { o.rotates = cfg.ConnConfig.Password != "" && !hasPassword(rest) }
	return open(cfg, append(append(own, opts...), ofFile))
}

// hasPassword reports whether a URL, or the environment, has a password that is not one of a
// passfile.
func hasPassword(rawURL string) bool {
	front, query, _ := strings.Cut(rawURL, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return true
	}
	values.Set("passfile", os.DevNull)
	cfg, err := pgxpool.ParseConfig(front + "?" + values.Encode())
	return err != nil || cfg.ConnConfig.Password != ""
}

func open(cfg *pgxpool.Config, opts []Option) (*Driver, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("postgresdriver: %w: %w", err, driver.ErrInvalid)
	}
	t, err := newTable(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("postgresdriver: %w: %w", err, driver.ErrInvalid)
	}
	return &Driver{rooms: roomdriver.New(t), table: t}, nil
}

// connect returns a pool, which makes its connections when they are needed.
func connect(cfg *pgxpool.Config, timeout time.Duration) (*pool, error) {
	cfg = cfg.Copy()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = withClosed, 0, 0
	cfg.PingTimeout = timeout
	noteWarnings(&cfg.ConnConfig.Config)
	patient := &patience{least: timeout, most: max(timeout, slowest)}
	if limit := cfg.ConnConfig.ConnectTimeout; limit > 0 {
		patient.least, patient.most = min(patient.least, limit), min(patient.most, limit)
	}
	patient.applyTo(cfg)
	p := &pool{there: make(map[*pgx.Conn]*life)}
	p.applyTo(cfg)
	var err error
	p.conns, err = pgxpool.NewWithConfig(context.Background(), cfg)
	return p, err
}

// slowest bounds how long connecting may take.
const slowest = 10 * time.Second

// patience is how long a connection may take to be made: as long as none has come for. A
// pool goes on to connect when the call that asked for it has given up, so a server
// that takes longer than a call to let somebody in is reached nevertheless; and nobody
// waits long for an attempt from before the server came back.
type patience struct {
	least, most time.Duration

	mu    sync.Mutex
	since time.Time // of the first attempt after the last connection; zero if there was none
}

// applyTo sets the hooks of a pool.
func (p *patience) applyTo(cfg *pgxpool.Config) {
	before, after := cfg.BeforeConnect, cfg.AfterConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		c.ConnectTimeout = p.begin(time.Now())
		if before != nil {
			return before(ctx, c)
		}
		return nil
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		p.connected()
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
}

// begin returns how long an attempt may take that begins now.
func (p *patience) begin(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = now
	}
	return min(max(now.Sub(p.since), p.least), p.most)
}

func (p *patience) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}
