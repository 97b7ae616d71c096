package postgresdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
)

// The counter of tokens is a sequence and a row. A token is the next value of the sequence plus
// the column "ends" of the row, so it is unique, and rises with each call, although the calls of
// different locks do not wait for each other.
//
// Both may come back from the past, with a restored server or a replica that takes over. Every
// session of a server therefore raises the row to the server's clock before its first token, and
// again after ten minutes. A setting of the session remembers that, because a pooler gives a
// connection now this session and now that. Rejected: setval, which would lower the sequence if
// other sessions take many values between the look at the clock and the change.
//
// A token is taken when no other transaction can give the lock one: after the row of the lock was
// locked or, if there is no row, under the advisory lock that every insertion takes first.
const (
	counterKey = `E'\x01tokens'`
	counterRow = `(SELECT ends FROM TABLE_NAME WHERE key = ` + counterKey + ` AND ends < 9007199254740992)` // 2^53
	// raisedLately reports whether this session has raised the counter.
	raisedLately = `coalesce(nullif(current_setting(SETTING, true), '')::bigint > ` + micros + ` - 600000000, false)`
	raise        = `INSERT INTO TABLE_NAME AS t (key, record, ends) SELECT ` + counterKey + `, ''::bytea, ` + micros + ` - nextval(SEQUENCE)
		ON CONFLICT (key) DO UPDATE SET ends = greatest(t.ends, excluded.ends) RETURNING ends`
	raised = `SELECT set_config(SETTING, (` + micros + `)::text, false)`
	count  = `SELECT ` + micros + `, ` + counterRow + `, CASE WHEN ` + raisedLately + ` THEN nextval(SEQUENCE) END`
	omit   = `SELECT count(nextval(SEQUENCE)) FROM generate_series(1, $1)`
	push   = `UPDATE TABLE_NAME SET ends = greatest(ends, $1) WHERE key = ` + counterKey
)

// counterAhead is how far the counter is ahead of the clock, in µs.
const counterAhead = `SELECT ends + coalesce(pg_sequence_last_value($1::regclass), 0) - ` + micros + ` FROM TABLE_NAME WHERE key = ` + counterKey

// manyTokens is how many tokens a call takes one by one, for a hand-over: pushes wait for each other.
const manyTokens = 256

// errLow: the session has not raised the counter yet, or its row was lost.
var errLow = errors.New("the counter of tokens was not raised by this session")

// raise raises the counter to the clock.
func (t *table) raise(ctx context.Context, conn *pgxpool.Conn) error {
	b := &pgx.Batch{}
	b.Queue(begin)
	b.Queue(limit, milliseconds(t.limit), milliseconds(queueing(ctx, t.limit)))
	// All fresh sessions wait for each other here. After a crash other sessions raise it again.
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	base := t.queueRaise(b)
	b.Queue(`COMMIT`)
	err := conn.SendBatch(ctx, b).Close()
	if err != nil {
		rollback(ctx, conn)
	} else if *base >= 1<<53 {
		return fmt.Errorf("the counter of tokens was changed to %d, which is too much: see `leasehold doctor`: %w", *base, driver.ErrMismatch)
	}
	return unavailable(err)
}

// queueRaise raises the counter in a transaction.
func (t *table) queueRaise(b *pgx.Batch) (base *int64) {
	base = new(int64)
	b.Queue(t.sql.raise).QueryRow(func(row pgx.Row) error { return row.Scan(base) })
	b.Queue(t.sql.raised)
	return base
}

// raising runs f, and again after raising the counter if f fails by errLow. Behind a pooler f may
// have another session then, so at last f raises the counter itself.
func (t *table) raising(ctx context.Context, conn *pgxpool.Conn, f func(raise bool) error) error {
	err := f(false)
	if errors.Is(err, errLow) {
		if err = t.raise(ctx, conn); err == nil {
			err = f(false)
		}
	}
	if errors.Is(err, errLow) {
		err = f(true)
	}
	if errors.Is(err, errLow) {
		err = unavailable(err)
	}
	return err
}

// literal returns a text in SQL.
func literal(text string) string {
	return "E'" + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(text) + "'"
}

// sequence returns the sequence of the counter in SQL.
func (o options) sequence() string {
	o.table += sequenceSuffix
	return o.name()
}

const sequenceSuffix = "_tokens"
