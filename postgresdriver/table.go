package postgresdriver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// table is a roomdriver.Transactor, Reader, Sweeper and Listener.
type table struct {
	cfg         options
	main, renew *pgxpool.Pool
	sql         statements
	limits      string // of a transaction, in milliseconds
	hurry       string // of an exchange; the server's word comes before our time is over

	ctx   context.Context // ends with Close
	close context.CancelFunc
}

// statements are the texts with the name of the table.
type statements struct {
	lock, lockMany, notes, insert, update, remove, read, list, sweep string
	exchangeNone, exchange, exchangeForNone                          string
}

// The clock is read by a statement of its own after the row was locked: one statement
// would read it before.
const (
	begin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`
	limit = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true),
		set_config('idle_in_transaction_session_timeout', $1, true)`
	hurry  = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)`
	clock  = `SELECT clock_timestamp()`
	guard  = `SELECT pg_advisory_xact_lock(id) FROM unnest($1::bigint[]) AS id`
	notify = `SELECT pg_notify(address, body) FROM unnest($1::text[], $2::text[]) AS message (address, body)`
)

// Parts of a statement that exchanges a record. What allows it is looked at behind the
// row's lock, and fails, with a text that is no number, if it came to wait for too long,
// or if the lock changes hands and somebody has a pin.
const (
	intime  = `clock_timestamp() BETWEEN $2::timestamptz AND $3::timestamptz`
	allowed = ` RETURNING CASE
		WHEN clock_timestamp() > $3::timestamptz + interval '5 s' THEN ('leasehold: too late, ' || clock_timestamp())::int
		WHEN CASE WHEN $4::bool THEN NOT ` + tryPin + ` END THEN ('leasehold: pinned, ' || clock_timestamp())::int
		ELSE (SELECT count(pg_notify(address, body))::int FROM unnest($6::text[], $7::text[]) AS message (address, body)) END AS sent`
	tryPin = `pg_try_advisory_xact_lock(hashtextextended($1::text, $5::text::regclass::oid::bigint))`
)

// sql puts the name of the table into a statement.
func (o options) sql(text string) string { return strings.ReplaceAll(text, "TABLE_NAME", o.name()) }

func newStatements(with func(text string) string) statements {
	lock := with(`SELECT key, record FROM TABLE_NAME WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE`)
	exchange := func(change string) string {
		return with(`WITH done AS (` + change + allowed + `)
			SELECT (SELECT max(sent) FROM done), CASE WHEN NOT EXISTS (SELECT FROM done) THEN
				(SELECT record FROM TABLE_NAME WHERE key = $1::text) END, clock_timestamp()`)
	}
	return statements{
		exchangeNone: exchange(`INSERT INTO TABLE_NAME AS t (key, record, ends)
			SELECT $1::text, $8::bytea, $9::bigint WHERE ` + intime + ` ON CONFLICT (key) DO NOTHING`),
		exchange: exchange(`UPDATE TABLE_NAME AS t SET record = $8::bytea, ends = $9::bigint
			WHERE key = $1::text AND record = $10::bytea AND ` + intime),
		exchangeForNone: exchange(`DELETE FROM TABLE_NAME AS t WHERE key = $1::text AND record = $8::bytea AND ` + intime),
		lock:            lock,
		lockMany:        lock + ` SKIP LOCKED`,
		notes:           with(`SELECT key, record FROM TABLE_NAME WHERE key = ANY($1::text[])`),
		insert:          with(`INSERT INTO TABLE_NAME (key, record, ends) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[])`),
		update: with(`UPDATE TABLE_NAME AS t SET record = n.record, ends = n.ends
			FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS n (key, record, ends) WHERE t.key = n.key`),
		remove: with(`DELETE FROM TABLE_NAME WHERE key = ANY($1::text[])`),
		read:   with(`SELECT (SELECT record FROM TABLE_NAME WHERE key = $1), clock_timestamp()`),
		list: with(`SELECT key, record, clock_timestamp() FROM TABLE_NAME
			WHERE key >= $1 AND key > $2 AND starts_with(key, $1) ORDER BY key LIMIT $3`),
		sweep: with(`WITH now AS MATERIALIZED (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms)
			DELETE FROM TABLE_NAME WHERE ends <= (SELECT ms FROM now) AND key = ANY(ARRAY(
				SELECT key FROM TABLE_NAME WHERE ends <= (SELECT ms FROM now) LIMIT $1 FOR UPDATE SKIP LOCKED))`),
	}
}

func newTable(cfg *pgxpool.Config, o options) (*table, error) {
	main, err := connect(cfg, mainConns, o.timeout)
	if err != nil {
		return nil, err
	}
	renew, err := connect(cfg, renewConns, o.timeout)
	if err != nil {
		main.Close()
		return nil, err
	}
	t := &table{cfg: o, main: main, renew: renew, sql: newStatements(o.sql), limits: milliseconds(o.timeout), hurry: milliseconds(o.timeout * 3 / 4)}
	t.ctx, t.close = context.WithCancel(context.Background())
	return t, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// lockID is an advisory lock about a key of the table.
func (o options) lockID(use, key string) int64 {
	sum := sha256.Sum256([]byte("leasehold\x00" + use + "\x00" + o.name() + "\x00" + key))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // all bits count
}

// with runs f with a connection, within the time of a transaction, and once more if the
// table had to be created first. f changes nothing if it says that there is no table.
func (t *table) with(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.timeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	pool := t.main
	if ctx.Value(renewal{}) != nil {
		pool = t.renew
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return unavailable(explain(connectError(ctx, err), t.cfg))
	}
	defer conn.Release()
	if err = f(ctx, conn); !missing(err) || !t.cfg.create {
		return explain(err, t.cfg)
	}
	if err := t.create(ctx, conn); err != nil {
		return unavailable(explain(err, t.cfg))
	}
	return explain(f(ctx, conn), t.cfg)
}

// Update implements [roomdriver.Table].
func (t *table) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return roomdriver.UpdateBy(ctx, t, key, f)
}

// Transact implements [roomdriver.Transactor].
func (t *table) Transact(ctx context.Context, items []roomdriver.Item, f func(int, roomdriver.Found) roomdriver.Change) (skipped []int, err error) {
	silent, shut := false, false
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		for {
			tx := transaction{table: t, conn: conn, items: items, silent: silent, shut: shut}
			skipped, err = tx.run(ctx, f)
			switch {
			case errors.Is(err, errTaken):
			case errors.Is(err, errFull) && !silent:
				silent = true // messages may be lost, locks may not
			case errors.Is(err, errPinned) && !shut:
				shut = true
			default:
				return err
			}
		}
	})
	return skipped, err
}

// Exchange implements [roomdriver.Exchanger] by one round trip: nothing is done between
// the statements, so they are sent together.
func (t *table) Exchange(ctx context.Context, x roomdriver.Exchange) (done bool, found roomdriver.Found, err error) {
	addresses, bodies := []string{}, []string{}
	for _, m := range x.Messages {
		addresses, bodies = append(addresses, m.Address), append(bodies, m.Body)
	}
	statement, args := t.sql.exchange, []any{x.Key, x.From, x.Until, x.Enters, t.cfg.name(), addresses, bodies}
	if x.Record != nil {
		end, _, err := roomdriver.End(x.Record)
		if err != nil {
			return false, found, unavailable(err)
		}
		args = append(args, x.Record, end.UnixMilli())
	} else {
		statement = t.sql.exchangeForNone
	}
	if x.Before != nil {
		args = append(args, x.Before)
	} else {
		statement = t.sql.exchangeNone
	}
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var sent *int
		b := &pgx.Batch{}
		b.Queue(begin)
		b.Queue(hurry, t.hurry)
		nothing := false // was changed, and the server has said so
		b.Queue(statement, args...).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&sent, &found.Record, &found.Now)
			nothing = err == nil && sent == nil
			return err
		})
		err := commit(ctx, conn, b)
		if nothing {
			return unavailable(err)
		}
		done = err == nil
		return err
	})
	if errors.Is(err, errPinned) || errors.Is(err, errFull) {
		return false, roomdriver.Found{}, nil
	}
	return done, found, err
}

// transaction is one attempt to replace the records of items.
type transaction struct {
	*table
	conn   *pgxpool.Conn
	items  []roomdriver.Item
	silent bool // sends no messages
	shut   bool // lets nobody in

	records map[string][]byte
	now     time.Time

	inserts, updates rows
	removes          []string
	addresses, body  []string
	enters           bool
}

// rows are columns.
type rows struct {
	keys    []string
	records [][]byte
	ends    []int64
}

func (r *rows) queue(b *pgx.Batch, statement string) {
	if len(r.keys) > 0 {
		b.Queue(statement, r.keys, r.records, r.ends)
	}
}

func (tx *transaction) run(ctx context.Context, f func(int, roomdriver.Found) roomdriver.Change) (skipped []int, err error) {
	if err := tx.read(ctx); err != nil {
		rollback(ctx, tx.conn)
		return nil, unavailable(err) // nothing was written
	}
	for i, item := range tx.items {
		record, ok := tx.records[item.Key]
		if !ok && len(tx.items) > 1 {
			skipped = append(skipped, i) // locked, or not there
			continue
		}
		note := tx.records[item.Note]
		change := f(i, roomdriver.Found{Record: record, Note: note, Now: tx.now, Shut: tx.shut})
		if change.Enters && len(tx.items) > 1 {
			skipped = append(skipped, i) // it may be pinned, and the others need not care
			continue
		}
		tx.enters = change.Enters
		if err := errors.Join(tx.put(item.Key, record, change.Record), tx.put(item.Note, note, change.Note)); err != nil {
			rollback(ctx, tx.conn)
			return nil, unavailable(err)
		}
		for _, m := range change.Messages {
			tx.addresses, tx.body = append(tx.addresses, m.Address), append(tx.body, m.Body)
		}
	}
	if err := tx.write(ctx); err != nil {
		return nil, err
	}
	return skipped, nil
}

// read begins the transaction, locks the rows and then reads the clock. Where notes
// are asked for, a lock of its own keeps the others out: there may be no row.
func (tx *transaction) read(ctx context.Context) error {
	var keys, notes []string
	var guards []int64
	for _, item := range tx.items {
		keys = append(keys, item.Key)
		if item.Note != "" {
			notes, guards = append(notes, item.Note), append(guards, tx.cfg.lockID("note", item.Key))
		}
	}
	slices.Sort(guards)
	tx.records = make(map[string][]byte, len(keys)+len(notes))
	b := &pgx.Batch{}
	b.Queue(begin)
	b.Queue(limit, tx.limits)
	if len(notes) > 0 {
		b.Queue(guard, guards)
	}
	lock := tx.sql.lock
	if len(keys) > 1 {
		lock = tx.sql.lockMany
	}
	b.Queue(lock, keys).Query(tx.collect)
	if len(notes) > 0 {
		b.Queue(tx.sql.notes, notes).Query(tx.collect)
	}
	b.Queue(clock).QueryRow(func(row pgx.Row) error { return row.Scan(&tx.now) })
	return tx.conn.SendBatch(ctx, b).Close()
}

func (tx *transaction) collect(rows pgx.Rows) error {
	for rows.Next() {
		var key string
		var record []byte
		if err := rows.Scan(&key, &record); err != nil {
			return err
		}
		tx.records[key] = record
	}
	return rows.Err()
}

// put notes what is to be written of a key.
func (tx *transaction) put(key string, record, next []byte) error {
	if bytes.Equal(record, next) {
		return nil
	}
	if next == nil {
		tx.removes = append(tx.removes, key)
		return nil
	}
	end, _, err := roomdriver.End(next)
	to := &tx.updates
	if record == nil {
		to = &tx.inserts
	}
	to.keys, to.records, to.ends = append(to.keys, key), append(to.records, next), append(to.ends, end.UnixMilli())
	return err
}

// write sends what there is to be written, and the commit, as one.
func (tx *transaction) write(ctx context.Context) error {
	b := &pgx.Batch{}
	tx.inserts.queue(b, tx.sql.insert)
	tx.updates.queue(b, tx.sql.update)
	if len(tx.removes) > 0 {
		b.Queue(tx.sql.remove, tx.removes)
	}
	if tx.enters { // behind the insertion: whoever inserts too waits there
		b.Queue(unpinned, tx.items[0].Key, tx.cfg.name())
	}
	if len(tx.addresses) > 0 && !tx.silent {
		b.Queue(notify, tx.addresses, tx.body)
	}
	if b.Len() == 0 || ctx.Err() != nil {
		rollback(ctx, tx.conn)
		return unavailable(ctx.Err())
	}
	return commit(ctx, tx.conn, b)
}

// commit sends statements with the end of their transaction, and reads the answers.
func commit(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) error {
	b.Queue(`COMMIT`)
	forgetWarning(conn)
	results := conn.SendBatch(ctx, b)
	err := outcome(conn, results, b.QueuedQueries[:b.Len()-1])
	_ = results.Close() // whatever is left, the commit has been answered
	if err != nil {
		rollback(ctx, conn)
	}
	return err
}

// outcome reads the answers to statements and to the commit behind them. If a statement
// has failed the server has skipped the commit.
func outcome(conn *pgxpool.Conn, results pgx.BatchResults, statements []*pgx.QueuedQuery) error {
	for _, s := range statements {
		read := s.Fn
		if read == nil {
			read = func(results pgx.BatchResults) error { _, err := results.Exec(); return err }
		}
		if err := read(results); err != nil {
			return beforeCommit(err)
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.String() != "COMMIT" {
		return unavailable(errors.New("the server has answered the commit by " + tag.String()))
	}
	return atCommit(err, conn)
}

// rollback gives the connection back without a transaction. If that fails the pool
// closes it.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() {
		_, _ = conn.Exec(ctx, `ROLLBACK`)
	}
}

// Read implements [roomdriver.Reader].
func (t *table) Read(ctx context.Context, key string) (record []byte, now time.Time, err error) {
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, t.sql.read, key).Scan(&record, &now)
	})
	return record, now, unavailable(err)
}

// List implements [roomdriver.Table]. The cursor is the last key of a page.
func (t *table) List(ctx context.Context, prefix, cursor string) (page roomdriver.Page, err error) {
	const size = 256
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		page = roomdriver.Page{}
		rows, err := conn.Query(ctx, t.sql.list, prefix, cursor, size)
		if err != nil {
			return err
		}
		page.Entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e roomdriver.Entry, err error) {
			return e, row.Scan(&e.Key, &e.Record, &page.Now)
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
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
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
		t.main.Close()
		t.renew.Close()
	}()
	select {
	case <-closed:
	case <-time.After(t.cfg.timeout):
	}
	return nil
}
