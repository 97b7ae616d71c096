// Package postgresdriver keeps locks in a table of PostgreSQL 14 or later, for
// programs that have such a database anyway. It supports every kind of lock.
//
//	pool, err := pgxpool.New(ctx, "postgres://app@db1/app")
//	…
//	store, err := postgresdriver.New(pool, postgresdriver.WithCreate())
//	…
//	client, err := leasehold.New(store)
//
// # How it uses the database
//
// Every lock in use is one row. A verb is one round trip if this process was the last to
// write the row, and mostly two otherwise: a conditional statement, in a transaction of its own,
// that replaces the row as it was read. If other processes are always faster, the row is
// locked, read with the server's clock, and written. Between two verbs there is no
// open transaction, advisory lock or session, so a pooler in transaction mode may be used
// ([WithListen] then names a server to listen to; otherwise waiters poll, and holders
// notice a break at a renewal). Simultaneous calls of many goroutines on one lock are one
// transaction, and a thousand leases are renewed by four, of a few statements each.
//
// Updates are HOT as long as a page has room: no column that changes has an index,
// and half of each page is left free. Vacuum removes the rows of names that were used
// once, which are deleted an hour after their last token.
//
// NOTIFY wakes waiters of other processes, in the transaction that causes it; commits with
// NOTIFY wait for each other in PostgreSQL, so a process does not notify itself. A break is
// reported to all users of the table. Each process that waits, or has held a lease for a
// second, has one listening connection.
//
// # Connections
//
// A store has a pool of its own, with the settings of the pool that it was made from. One
// waiting or holding call needs one connection. The pool grows if calls come at the same
// time: to eight connections, and to twelve for renewals, which therefore never wait for the
// application. A connection that is idle for pool_max_conn_idle_time (30 min) is closed, and
// the listening one is given up if the server accepts no other. While the server refuses
// connections, or is away, calls share the existing ones, renewals first, and one call at a
// time tries to make another: after 25 to 50 ms, and twice as long after each refusal, up to
// 1 s. A connection to a server that becomes a read-only replica is closed, so that a name
// is looked up again. A call whose context ends returns soon, but its statements are not
// cut off, since that would cost the connection. Each transaction sets
// statement_timeout, lock_timeout and idle_in_transaction_session_timeout for itself
// ([WithTimeout]). So a process that is stopped within a transaction keeps other processes
// from that lock for at most that time.
//
// A program that uses package database/sql opens the store by the URL of its database.
// The store cannot share the connections of a sql.DB, which has neither pipelines, needed
// for verbs in one round trip, nor LISTEN.
//
// # Requirements on the server
//
// An acknowledged commit must survive: with synchronous_commit off, or fsync off, a
// crash of the server loses the last locks, and so does a failover to a replica
// unless it is synchronous (synchronous_standby_names, and synchronous_commit on or
// higher). A lost lock may be granted again while its holder still works; the
// token distinguishes the two. Tokens begin with the server's clock in microseconds and
// rise with it, so they rise even over a restored backup, unless the clock is stepped
// back behind the tokens given since.
//
// # Rights
//
// The role needs USAGE on the schema and on the sequence leasehold_tokens, named after the
// table, and SELECT, INSERT, UPDATE and DELETE on the table, and no other right. The role that
// creates the table needs CREATE on the schema; [SQL], or `leasehold schema`, returns the
// statements.
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

var _ driver.Checker = (*Driver)(nil)

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
// hooks for connections of its own; the pool may be closed before. New makes no connection.
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
// percent-encoded). Open makes no connection. An error matches [driver.ErrInvalid], and
// contains no password.
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
	p := &pool{open: make(map[*pgx.Conn]*connState), patience: patience{least: timeout, most: max(timeout, slowest)}}
	if limit := cfg.ConnConfig.ConnectTimeout; limit > 0 {
		p.patience.least, p.patience.most = min(p.patience.least, limit), min(p.patience.most, limit)
	}
	p.applyTo(cfg)
	var err error
	p.conns, err = pgxpool.NewWithConfig(context.Background(), cfg)
	return p, err
}

// slowest bounds how long connecting may take.
const slowest = 10 * time.Second

// patience is the time limit for making a connection: the longer there has been none, the
// longer it is. A pool continues to connect when the call that asked for it has given up, so
// a server that accepts connections slower than calls time out is still reached. And calls
// do not wait long for an attempt from before the server came back.
type patience struct {
	least, most time.Duration

	mu    sync.Mutex
	since time.Time // first attempt after the last connection; zero without one
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
