package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
)

// bank is a table whose rows remember the greatest token they have seen.
type bank struct{ *sql.DB }

const schema = `
CREATE TABLE account (
	id      INTEGER PRIMARY KEY,
	balance INTEGER NOT NULL,
	fence   INTEGER NOT NULL, -- the greatest token seen
	lease   TEXT    NOT NULL  -- the lease that brought it
);
INSERT INTO account VALUES (1, 100, 0, '');`

// raise announces a token. An equal one passes if it comes from the same lease,
// which may write more than once. (Leases that share a token because they
// re-enter by WithOwner would have the owner here in place of the lease's id.)
const raise = `
UPDATE account SET fence = ?1, lease = ?2
WHERE id = 1 AND (fence < ?1 OR fence = ?1 AND lease = ?2)`

// errStale says that a later holder has been here.
var errStale = errors.New("stale lease")

func newBank(ctx context.Context) (bank, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return bank{}, err
	}
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	_, err = db.ExecContext(ctx, schema)
	return bank{db}, err
}

func (b bank) read(ctx context.Context, lease *leasehold.Lease) (balance int64, err error) {
	err = b.fenced(ctx, lease, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = 1`).Scan(&balance)
	})
	return balance, err
}

func (b bank) write(ctx context.Context, lease *leasehold.Lease, balance int64) error {
	return b.fenced(ctx, lease, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE account SET balance = ? WHERE id = 1`, balance)
		return err
	})
}

// fenced runs f in a transaction that first raises the fence to the lease's
// token, or ends if a greater one was there before. Raising first takes the
// row's lock, so that nobody comes between the check and what f does.
func (b bank) fenced(ctx context.Context, lease *leasehold.Lease, f func(*sql.Tx) error) error {
	tx, err := b.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	result, err := tx.ExecContext(ctx, raise, lease.Token(), lease.ID())
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("token %d: %w", lease.Token(), errStale)
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
