package postgresdriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/pinning"
)

// ErrNotHeld is the error of [Pin] if the lease is over, by the clock of the database.
var ErrNotHeld = errors.New("the lease is not held any more")

// Lease is the part of a lease that [Pin] needs. A lease of package leasehold implements
// it. Pass it to Pin itself, or embedded: with leasehold.WithLocalHandover, several leases
// have one ID, and Pin distinguishes them by the lease's method Context.
type Lease interface {
	Key() string
	ID() string
}

// A pin is an advisory lock of a key, which many may share, and which a change of hands
// needs alone, for the rest of its transaction. It takes no row, so renewals go on. The
// table counts by its own id, so it does not matter by which name it is known.
const (
	pinID = `hashtextextended($1::text, TABLE_ID)`
	pin   = `SELECT pg_advisory_xact_lock_shared(` + pinID + `),
		current_setting('transaction_isolation')`
	pinned = `SELECT (SELECT record FROM TABLE_NAME WHERE key = $1), ` + micros
	// unpinned fails if a transaction has a pin. The time in it keeps the server from
	// evaluating the failing expression in advance.
	tryPin   = `pg_try_advisory_xact_lock(` + pinID + `)`
	unpinned = `SELECT CASE WHEN ` + tryPin + ` THEN 0
		ELSE ('leasehold: a transaction that has not ended pins the lock, ' || clock_timestamp())::int END`
)

// Pin makes a transaction depend on a lock in the same database. It fails with
// [ErrNotHeld] if the lease is over, by the clock of the database. After that no other
// client is granted the lock until the transaction ends, even if the lease expires or is
// released, or its holder is stopped for an hour. So a holder that has lost its lease
// cannot commit, and every commit was made under the lock. No token has to be compared.
// For effects of a lock on other databases see package fence.
//
// During the transaction further readers may join a reader's lease, but a semaphore gives
// no places, and a writer's lease does not become a reader's: Downgrade fails with
// [driver.ErrUnavailable], and is repeated after the end of the transaction. A lease of
// leasehold.WithLocalHandover returns to the store when it is released, and is no longer
// passed on inside the process.
//
// Pin comes before the statements that depend on the lock. It does not prolong the
// lease, whose renewals go on, and holds no row. While the transaction lasts waiters
// keep their places and ask four times a second. If the session of a transaction ends
// its pin ends with it, and nothing is committed.
//
// The transaction must be READ COMMITTED, PostgreSQL's default: at other levels it sees
// the lock as it was at its beginning, so Pin refuses these with [driver.ErrInvalid]. The
// role needs the right to SELECT from the table of locks. The options name the table, as
// for the store.
func Pin(ctx context.Context, tx pgx.Tx, lease Lease, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return fmt.Errorf("pin: %w: %w", err, driver.ErrInvalid)
	}
	if !pinning.Keep(lease) { // first: it might be passed on behind our look at it
		return fmt.Errorf("pin %q: passed on inside the process, or given back: %w", lease.Key(), ErrNotHeld)
	}
	var isolation string
	var record []byte
	var now time.Time
	b := &pgx.Batch{}
	b.Queue(o.sql(pin), lease.Key()).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &isolation) })
	b.Queue(o.sql(pinned), lease.Key()).QueryRow(func(row pgx.Row) error { return row.Scan(&record, (*instant)(&now)) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("pin %q: %w", lease.Key(), explain(err, o))
	}
	if isolation != "read committed" && isolation != "read uncommitted" {
		return fmt.Errorf("pin %q: the transaction is one of %s, which sees the lock as it was when it began; take READ COMMITTED: %w",
			lease.Key(), isolation, driver.ErrInvalid)
	}
	snap, err := roomdriver.Look(record, lease.Key(), now)
	if err != nil {
		return fmt.Errorf("pin %q: %w", lease.Key(), err)
	}
	for _, h := range snap.Holders {
		if h.ID == lease.ID() {
			return nil
		}
	}
	return fmt.Errorf("pin %q: %w", lease.Key(), ErrNotHeld)
}
