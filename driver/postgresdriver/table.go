package postgresdriver

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// table is a roomdriver.Transactor, Reader, Sweeper and Listener.
type table struct {
	cfg    options
	pool   *pool
	before func(context.Context, *pgx.ConnConfig) error // the application's hook for each connection, or nil
	sql    statements
	limit  time.Duration // of a transaction
	hurry  time.Duration // of an exchange; the server's word comes before our time is over
	maker  maker

	ctx   context.Context // ends with Close
	close context.CancelFunc
}

func newTable(cfg *pgxpool.Config, o options) (*table, error) {
	pool, err := connect(cfg, o.timeout)
	if err != nil {
		return nil, err
	}
	pool.rotates = o.rotates
	t := &table{cfg: o, pool: pool, before: cfg.BeforeConnect, sql: newStatements(o.sql), limit: o.timeout, hurry: o.timeout * 3 / 4}
	t.ctx, t.close = context.WithCancel(context.Background())
	return t, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// lockID returns an advisory lock about a key of the table.
func (o options) lockID(use, key string) int64 {
	sum := sha256.Sum256([]byte("leasehold\x00" + use + "\x00" + o.name() + "\x00" + key))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // all bits count
}

// with runs f with a connection, within the time of a transaction, and again if the table
// had to be created first, or was dropped in between. Without a table f has no effect.
func (t *table) with(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	err := t.once(ctx, f)
	for try := 0; try < creations && missing(err) && t.cfg.create; try++ {
		if err := t.maker.made(ctx, t); err != nil {
			return unavailable(explain(uncreated{err}, t.cfg))
		}
		err = t.once(ctx, f)
	}
	return explain(err, t.cfg)
}

// once runs f with a connection. The end of the caller's context ends the wait for one, but
// does not cut off statements that were sent, since that would cost the connection: under
// contention, when many callers give up, a process would do little else than connect, and a
// short lease on a slow server would be lost because each try of its renewal needs a new
// connection. Calls with [cutOff] are cut off.
func (t *table) once(caller context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) (err error) {
	u, _ := caller.Value(urgent{}).(urgency)
	base := context.WithoutCancel(caller)
	switch {
	case u == renewing:
		if end, ok := caller.Deadline(); ok {
			base = context.WithValue(base, leaving{}, end)
		}
		defer context.AfterFunc(caller, t.pool.noteSilence)()
	case caller.Value(ending{}) != nil:
		base = caller
	}
	ctx, cancel := context.WithTimeout(base, t.cfg.timeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	began := time.Now()
	conn, err := t.acquire(caller, ctx, u)
	if err != nil {
		return unavailable(err)
	}
	if time.Since(began) > t.cfg.timeout/4 {
		// In the time that is left the server could not report its own timeout first, and
		// the connection would be lost.
		full, cancel := context.WithTimeout(base, t.cfg.timeout)
		defer cancel()
		defer context.AfterFunc(t.ctx, cancel)()
		ctx = full
	}
	defer func() { t.pool.give(conn, err) }()
	return f(ctx, conn)
}

// leaving is the key of the time at which the caller of a renewal gives up, although the
// call is not cut off then.
type leaving struct{}

// timeLeft returns how long the caller of this context will wait.
func timeLeft(ctx context.Context) time.Duration {
	left := time.Hour
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	if end, ok := ctx.Value(leaving{}).(time.Time); ok {
		left = min(left, time.Until(end))
	}
	return left
}

// queueing returns how long a call may wait for each row lock, at most most. A renewal that
// waited longer than its caller would keep a connection in vain, and there are few: the
// tries of one lease at a locked row would take all of them.
func queueing(ctx context.Context, most time.Duration) time.Duration {
	end, ok := ctx.Value(leaving{}).(time.Time)
	if !ok {
		return most
	}
	// The caller leaves first, because a locked row is not an outage. Zero would mean no
	// limit.
	return min(max(time.Until(end)*5/4, time.Millisecond), most)
}

// ending is the key of a context whose call is cut off when the context ends.
type ending struct{}

// cutOff returns a context for a call that cannot outlive its caller, which waits for its
// end; there are few such calls.
func cutOff(ctx context.Context) context.Context { return context.WithValue(ctx, ending{}, true) }

// acquire takes a connection until either context ends.
func (t *table) acquire(caller, ctx context.Context, u urgency) (conn *pgxpool.Conn, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(caller, cancel)()
	if u == renewing {
		conn, err = t.pool.takeToRenew(ctx)
	} else {
		conn, err = t.pool.take(ctx, u)
	}
	switch {
	case err == nil:
		return conn, nil
	case caller.Err() != nil:
		return nil, connectError(caller, t.pool.withReason(caller.Err()))
	default:
		return nil, connectError(ctx, err)
	}
}

// Read implements [roomdriver.Reader]. It refuses a replica: a call without changes is
// answered from the data read, and a replica may not have a lease yet.
func (t *table) Read(ctx context.Context, key string) (record []byte, now time.Time, err error) {
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var replica bool
		err := conn.QueryRow(ctx, t.sql.read, key).Scan(&record, (*instant)(&now), &replica)
		if replica {
			return errReplica
		}
		return err
	})
	return record, now, unavailable(err)
}

// List implements [roomdriver.Table]. The cursor is the last key of a page.
func (t *table) List(ctx context.Context, prefix, cursor string) (page roomdriver.Page, err error) {
	const size = 256
	err = t.with(cutOff(ctx), func(ctx context.Context, conn *pgxpool.Conn) error {
		page = roomdriver.Page{}
		rows, err := conn.Query(ctx, t.sql.list, prefix, cursor, size)
		if err != nil {
			return err
		}
		page.Entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e roomdriver.Entry, err error) {
			return e, row.Scan(&e.Key, &e.Record, (*instant)(&page.Now))
		})
		if len(page.Entries) == size {
			page.Next = page.Entries[size-1].Key
		}
		return err
	})
	return page, unavailable(err)
}

// Sweep implements [roomdriver.Sweeper]. Rows that are in use are left out.
func (t *table) Sweep(ctx context.Context, limit int) (removed int, err error) {
	err = t.with(context.WithValue(cutOff(ctx), urgent{}, background), func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, t.sql.sweep, limit)
		removed = int(tag.RowsAffected())
		return err
	})
	return removed, err
}

// Close implements [roomdriver.Table]. Connections to a server that does not answer
// are given up.
func (t *table) Close() error {
	t.close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		t.pool.close()
	}()
	select {
	case <-closed:
	case <-time.After(t.cfg.timeout):
	}
	return nil
}
