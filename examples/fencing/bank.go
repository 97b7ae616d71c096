package main

import (
	"context"
	"database/sql"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fence"
)

// bank is a table with a fence, which is in a second table.
type bank struct {
	*sql.DB
	fences fence.SQL
}

const schema = `
CREATE TABLE account (
	id      INTEGER PRIMARY KEY,
	balance INTEGER NOT NULL
);
INSERT INTO account VALUES (1, 100);`

func newBank(ctx context.Context) (bank, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return bank{}, err
	}
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	b := bank{DB: db}
	if err := b.fences.Create(ctx, db); err != nil {
		return b, err
	}
	_, err = db.ExecContext(ctx, schema)
	return b, err
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
// token, or ends if a greater one was there before.
func (b bank) fenced(ctx context.Context, lease *leasehold.Lease, f func(*sql.Tx) error) error {
	return b.fences.Do(ctx, b.DB, "account/1", fence.Of(lease), f)
}
