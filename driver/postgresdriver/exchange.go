package postgresdriver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Exchange implements [roomdriver.Exchanger] by one round trip: the client does
// no work between the statements, so they are sent together.
func (t *table) Exchange(ctx context.Context, x roomdriver.Exchange) (done bool, found roomdriver.Found, err error) {
	statement, args := t.sql.exchangeForNone, []any{x.Key, x.From, x.Until, x.Enters}
	if x.Record != nil {
		end, _, err := roomdriver.End(x.Record)
		if err != nil {
			return false, found, unavailable(err)
		}
		statement, args = t.sql.exchange, append(args, x.Record, end.UnixMilli())
	}
	if x.Mints {
		statement, args = t.sql.exchangeToMint, append(args, binary.BigEndian.Uint64(x.Record[9:])&math.MaxInt64)
	}
	look, start := t.sql.look, []any{milliseconds(t.hurry), "", x.Key}
	if x.Before != nil {
		args = append(args, x.Before)
	} else {
		statement, look, start = t.sql.exchangeNone, t.sql.enter, append(start, t.cfg.lockID("key", x.Key))
	}
	try := func(ctx context.Context, conn *pgxpool.Conn, raise bool) error {
		b := &pgx.Batch{}
		b.Queue(begin)
		start[1] = milliseconds(queueing(ctx, t.hurry))
		ready := false // the session certainly may mint
		b.Queue(look, start...).QueryRow(func(row pgx.Row) error {
			return row.Scan(nil, nil, &found.Record, (*instant)(&found.Now), &ready, nil)
		})
		if raise {
			t.queueRaise(b)
		}
		changed, same := false, false // it certainly is; if neither, the answer is missing
		b.Queue(statement, args...).Query(func(rows pgx.Rows) error {
			into := []any{nil, (*instant)(&found.Now)}
			if x.Mints {
				into = append(into, &found.Record)
			}
			_, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (any, error) { return nil, row.Scan(into...) })
			// Without a row there may have been no answer, so the tag decides.
			same = errors.Is(err, pgx.ErrNoRows) && strings.HasSuffix(rows.CommandTag().String(), " 0")
			if changed = err == nil; same {
				return nil
			}
			return err
		})
		err := commit(ctx, conn, b)
		switch {
		case same && err == nil && x.Mints && !ready && !raise && bytes.Equal(found.Record, x.Before):
			return errLow
		case same:
			return unavailable(err)
		}
		done = changed && err == nil
		return err
	}
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return t.raising(ctx, conn, func(raise bool) error { return try(ctx, conn, raise) })
	})
	if errors.Is(err, errPinned) {
		return false, roomdriver.Found{}, nil
	}
	return done, found, err
}

// commit sends statements with the end of their transaction, and reads the answers.
func commit(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) error {
	b.Queue(`COMMIT`)
	forgetWarning(conn)
	results := conn.SendBatch(ctx, b)
	err := outcome(conn, results, b.QueuedQueries[:b.Len()-1])
	_ = results.Close() // an error does not matter: the commit has been answered
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
