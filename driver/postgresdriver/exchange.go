package postgresdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Exchange implements [roomdriver.Exchanger] by one round trip: the client does
// no work between the statements, so they are sent together.
func (t *table) Exchange(ctx context.Context, x roomdriver.Exchange) (done bool, found roomdriver.Found, err error) {
	addresses, bodies := t.cfg.channels(x.Messages)
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
	switch {
	case x.Before == nil:
		statement = t.sql.exchangeNone
	case x.Mints:
		statement = t.sql.exchangeToMint
	}
	if x.Before != nil {
		args = append(args, x.Before)
	}
	if x.Mints {
		args = append(args, binary.BigEndian.Uint64(x.Record[9:])&math.MaxInt64)
	}
	try := func(ctx context.Context, conn *pgxpool.Conn, raise bool) error {
		var sent *int
		b := &pgx.Batch{}
		b.Queue(begin)
		start := []any{milliseconds(t.hurry), milliseconds(queueing(ctx, t.hurry))}
		if x.Before != nil {
			b.Queue(hurry, start...)
		} else {
			b.Queue(t.sql.enter, append(start, t.cfg.lockID("key", x.Key), x.Key)...)
		}
		if raise {
			t.queueRaise(b)
		}
		nothing, ready := false, true // the server has reported that the record is unchanged, and whether it could mint
		b.Queue(statement, args...).QueryRow(func(row pgx.Row) error {
			into := []any{&sent, &found.Record, (*instant)(&found.Now)}
			if x.Mints {
				into = append(into, &ready)
			}
			err := row.Scan(into...)
			nothing = err == nil && sent == nil
			return err
		})
		err := commit(ctx, conn, b)
		switch {
		case nothing && err == nil && !ready:
			return errLow
		case nothing:
			return unavailable(err)
		}
		done = err == nil
		return err
	}
	err = t.with(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return t.raising(ctx, conn, func(raise bool) error { return try(ctx, conn, raise) })
	})
	if errors.Is(err, errPinned) || errors.Is(err, errFull) {
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
