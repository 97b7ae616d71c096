// Package sqlitestore keeps locks in a table of an SQLite database, for processes
// of one machine that have such a file anyway. It is an example of a store on package
// roomdriver: it needs a table, and messages for which waiters poll.
//
// The clock is the machine's wall clock. It must not be stepped forward while locks
// are held: see the documentation of package roomdriver.
package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	"modernc.org/sqlite"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

const schema = `
CREATE TABLE IF NOT EXISTS leasehold_record (
	key    TEXT PRIMARY KEY,
	record BLOB NOT NULL,
	ends   INTEGER NOT NULL -- ms: when the row may be deleted
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS leasehold_record_ends ON leasehold_record (ends);
CREATE TABLE IF NOT EXISTS leasehold_message (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	address TEXT NOT NULL,
	body    TEXT NOT NULL,
	sent    INTEGER NOT NULL -- ms
);
CREATE INDEX IF NOT EXISTS leasehold_message_address ON leasehold_message (address, id);`

// options of a connection: transactions lock the database at once, and wait for it
// for a moment at a time, so that they notice the end of their context. A commit is
// not synced: a machine that loses its power has no holders after that.
const options = "?_txlock=immediate&_pragma=busy_timeout(50)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"

// Open opens the store in a database file, which is created if need be. Any number
// of processes of the machine may share it. The options are those of roomdriver.New.
func Open(ctx context.Context, path string, opts ...roomdriver.Option) (*roomdriver.Driver, error) {
	t, err := open(ctx, path)
	if err != nil {
		return nil, err
	}
	return roomdriver.New(t, opts...), nil
}

// open opens the table and creates its schema.
func open(ctx context.Context, path string) (*table, error) {
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(path)+options)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // one writes at a time; here they queue in order
	err = repeat(ctx, func() error {
		_, err := db.ExecContext(ctx, schema)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return &table{db: db}, nil
}

// table is a roomdriver.Transactor, Listener and Sweeper.
type table struct{ db *sql.DB }

// Update implements [roomdriver.Table].
func (t *table) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return roomdriver.UpdateBy(ctx, t, key, f)
}

// Transact implements [roomdriver.Transactor]. It has no effect before the commit.
func (t *table) Transact(ctx context.Context, items []roomdriver.Item, f func(int, roomdriver.Found) roomdriver.Change) ([]int, error) {
	tx, err := t.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	defer func() { _ = tx.Rollback() }()
	wrote := false
	for i, item := range items {
		found := roomdriver.Found{Now: tx.now, Record: tx.find(item.Key), Note: tx.find(item.Note), Also: tx.find(item.Also)}
		if tx.err != nil {
			break
		}
		change := f(i, found)
		wrote = tx.put(item.Key, found.Record, change.Record) || wrote
		wrote = tx.put(item.Note, found.Note, change.Note) || wrote
		for _, m := range change.Messages {
			tx.exec(`INSERT INTO leasehold_message (address, body, sent) VALUES (?, ?, ?)`, m.Address, m.Body, tx.now.UnixMilli())
		}
	}
	if tx.err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, tx.err)
	}
	if !wrote {
		return nil, nil
	}
	return nil, tx.Commit()
}

// transaction has the database for itself since now. After an error its methods have no effect.
type transaction struct {
	*sql.Tx
	ctx context.Context
	now time.Time
	err error
}

func (t *table) begin(ctx context.Context) (*transaction, error) {
	var tx *sql.Tx
	err := repeat(ctx, func() (err error) {
		tx, err = t.db.BeginTx(ctx, nil)
		return err
	})
	return &transaction{Tx: tx, ctx: ctx, now: time.Now()}, err
}

// find returns the record of key, or nil.
func (tx *transaction) find(key string) (record []byte) {
	if key == "" || tx.err != nil {
		return nil
	}
	err := tx.QueryRowContext(tx.ctx, `SELECT record FROM leasehold_record WHERE key = ?`, key).Scan(&record)
	if !errors.Is(err, sql.ErrNoRows) {
		tx.err = err
	}
	return record
}

// put replaces a record, unless it is the same.
func (tx *transaction) put(key string, record, next []byte) bool {
	if bytes.Equal(record, next) {
		return false
	}
	if next == nil {
		tx.exec(`DELETE FROM leasehold_record WHERE key = ?`, key)
	} else if end, _, err := roomdriver.End(next); err != nil {
		tx.err = err
	} else {
		tx.exec(`INSERT OR REPLACE INTO leasehold_record VALUES (?, ?, ?)`, key, next, end.UnixMilli())
	}
	return true
}

func (tx *transaction) exec(query string, args ...any) (affected int64) {
	if tx.err != nil {
		return 0
	}
	var done sql.Result
	if done, tx.err = tx.ExecContext(tx.ctx, query, args...); tx.err == nil {
		affected, tx.err = done.RowsAffected()
	}
	return affected
}

// List implements [roomdriver.Table]. The cursor is the last key of a page.
func (t *table) List(ctx context.Context, prefix, cursor string) (page roomdriver.Page, err error) {
	const size = 256
	rows, err := t.db.QueryContext(ctx, `SELECT key, record FROM leasehold_record
		WHERE key >= ?1 AND key > ?2 AND substr(key, 1, length(?1)) = ?1 ORDER BY key LIMIT ?3`, prefix, cursor, size)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	page.Now = time.Now()
	for rows.Next() {
		var e roomdriver.Entry
		if err := rows.Scan(&e.Key, &e.Record); err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, e)
	}
	if len(page.Entries) == size {
		page.Next = page.Entries[size-1].Key
	}
	return page, rows.Err()
}

// Sweep implements [roomdriver.Sweeper]. It also removes messages, which listeners fetch within
// a minute.
func (t *table) Sweep(ctx context.Context, limit int) (int, error) {
	tx, err := t.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	removed := tx.exec(`DELETE FROM leasehold_record WHERE key IN
		(SELECT key FROM leasehold_record WHERE ends <= ? LIMIT ?)`, tx.now.UnixMilli(), limit)
	tx.exec(`DELETE FROM leasehold_message WHERE sent <= ?`, tx.now.Add(-time.Minute).UnixMilli())
	if tx.err != nil {
		return 0, tx.err
	}
	return int(removed), tx.Commit()
}

// Listen implements [roomdriver.Listener], by looking for messages while this
// process waits for locks. Sweeps delete them.
func (t *table) Listen(receive func(body string)) (driver.Subscription, error) {
	last := int64(0)
	return roomdriver.Poll(receive, 10*time.Millisecond, func(ctx context.Context, address string) (bodies []string, err error) {
		rows, err := t.db.QueryContext(ctx, `SELECT id, body FROM leasehold_message WHERE address IN (?, ?) AND id > ? ORDER BY id`, address, roomdriver.Everybody, last)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var body string
			if err := rows.Scan(&last, &body); err != nil {
				return bodies, err
			}
			bodies = append(bodies, body)
		}
		return bodies, rows.Err()
	}), nil
}

// Close implements [roomdriver.Table].
func (t *table) Close() error { return t.db.Close() }

// repeat calls f until the database is not busy any more, or ctx ends.
func repeat(ctx context.Context, f func() error) error {
	for {
		err := f()
		var busy *sqlite.Error
		if !errors.As(err, &busy) || busy.Code()&0xff != 5 { // SQLITE_BUSY
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}
