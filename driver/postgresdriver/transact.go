package postgresdriver

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Update implements [roomdriver.Table].
func (t *table) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return roomdriver.UpdateBy(ctx, t, key, f)
}

// Transact implements [roomdriver.Transactor].
func (t *table) Transact(ctx context.Context, items []roomdriver.Item, f func(int, roomdriver.Found) roomdriver.Change) (skipped []int, err error) {
	silent, pinned, shut := false, false, false
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		for {
			err = t.raising(ctx, conn, func(raise bool) (err error) {
				tx := transaction{table: t, conn: conn, items: items, silent: silent, shut: shut, raise: raise}
				skipped, err = tx.run(ctx, f)
				return err
			})
			switch {
			case errors.Is(err, errTaken):
			case errors.Is(err, errFull) && !silent:
				silent = true // messages may be lost, locks may not
			case errors.Is(err, errPinned) && !pinned:
				pinned = true // the server shows the commit of a change of hands before it releases its pin
			case errors.Is(err, errPinned) && !shut:
				shut = true
			default:
				return err
			}
		}
	})
	return skipped, err
}

// transaction is one attempt to replace the records of items.
type transaction struct {
	*table
	conn   *pgxpool.Conn
	items  []roomdriver.Item
	silent bool // sends no messages
	shut   bool // makes the step refuse new holders
	raise  bool // raises the counter

	records     map[string][]byte
	now         time.Time
	base, value *int64 // of the counter: a token is their sum; nil if there are several items, or it must be raised
	omit, push  int64  // how many tokens are left out for the change, or the least base after it; or 0

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
		return nil, unavailable(err) // the records are unchanged
	}
	token := int64(0)
	if tx.base != nil && tx.value != nil {
		token = *tx.base + *tx.value
	}
	for i, item := range tx.items {
		record, ok := tx.records[item.Key]
		if !ok && len(tx.items) > 1 {
			skipped = append(skipped, i) // locked, or not there
			continue
		}
		note := tx.records[item.Note]
		change := f(i, roomdriver.Found{Record: record, Note: note, Also: tx.records[item.Also], Now: tx.now, Token: token, Shut: tx.shut})
		if change.Enters && len(tx.items) > 1 {
			skipped = append(skipped, i) // this item may be pinned; the remaining items continue
			continue
		}
		if change.Mints && token == 0 {
			rollback(ctx, tx.conn)
			return nil, errLow
		}
		tx.enters = change.Enters
		if gap := change.Token - token; gap > manyTokens {
			tx.push = change.Token - *tx.value
		} else if gap > 0 {
			tx.omit = gap
		}
		if err := errors.Join(tx.put(item.Key, record, change.Record), tx.put(item.Note, note, change.Note)); err != nil {
			rollback(ctx, tx.conn)
			return nil, unavailable(err)
		}
		addresses, bodies := tx.cfg.channels(change.Messages)
		tx.addresses, tx.body = append(tx.addresses, addresses...), append(tx.body, bodies...)
	}
	if err := tx.write(ctx); err != nil {
		return nil, err
	}
	return skipped, nil
}

// read begins the transaction, locks the rows, and then reads the clock and takes a token. An
// additional lock excludes other transactions of a single item, and of one with a note, since
// there may be no row. An existing note is locked against sweeps, which might remove it
// together with the update.
func (tx *transaction) read(ctx context.Context) error {
	var keys, notes []string
	var guards []int64
	for _, item := range tx.items {
		keys = append(keys, item.Key)
		if item.Note != "" {
			notes = append(notes, item.Note)
		}
		if item.Note != "" || len(tx.items) == 1 {
			guards = append(guards, tx.cfg.lockID("key", item.Key))
		}
	}
	slices.Sort(guards)
	tx.records = make(map[string][]byte, len(keys)+len(notes))
	b := &pgx.Batch{}
	b.Queue(begin)
	b.Queue(limit, milliseconds(tx.limit), milliseconds(queueing(ctx, tx.limit)))
	if len(guards) > 0 {
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
	if len(tx.items) == 1 {
		if also := tx.items[0].Also; also != "" {
			b.Queue(tx.sql.also, also).Query(tx.collect)
		}
		if tx.raise {
			tx.queueRaise(b)
		}
		b.Queue(tx.sql.count).QueryRow(func(row pgx.Row) error { return row.Scan((*instant)(&tx.now), &tx.base, &tx.value) })
	} else {
		b.Queue(clock).QueryRow(func(row pgx.Row) error { return row.Scan((*instant)(&tx.now)) })
	}
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

// put records a write to a key.
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

// write sends the writes and the commit together.
func (tx *transaction) write(ctx context.Context) error {
	b := &pgx.Batch{}
	tx.inserts.queue(b, tx.sql.insert)
	tx.updates.queue(b, tx.sql.update)
	if len(tx.removes) > 0 {
		b.Queue(tx.sql.remove, tx.removes)
	}
	if tx.enters { // after the insertion, at which concurrent insertions wait
		b.Queue(tx.sql.unpinned, tx.items[0].Key)
	}
	if len(tx.addresses) > 0 && !tx.silent {
		b.Queue(notify, tx.addresses, tx.body)
	}
	if tx.omit > 0 {
		b.Queue(tx.sql.omit, tx.omit)
	}
	if tx.push > 0 { // late, since the sessions that raise the counter wait for its end
		b.Queue(tx.sql.push, tx.push)
	}
	if b.Len() == 0 || ctx.Err() != nil {
		rollback(ctx, tx.conn)
		return unavailable(ctx.Err())
	}
	return commit(ctx, tx.conn, b)
}
