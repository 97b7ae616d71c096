package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// SQL fences resources in a database: those whose greatest claims stand in a
// table of it. The zero value is for databases whose placeholders are question
// marks, such as MySQL and SQLite. It is safe for concurrent use.
//
// The table is made by [SQL.Create], or by hand:
//
//	CREATE TABLE fence (
//		resource VARCHAR(512) NOT NULL PRIMARY KEY,
//		token    BIGINT       NOT NULL,
//		owner    VARCHAR(256) NOT NULL
//	)
type SQL struct {
	// Table is its name, as it is written in a statement. Default: fence.
	Table string
	// Placeholder is how the nth argument is written, counted from 1, such as
	// [Dollar]. Default: a question mark.
	Placeholder func(n int) string
}

// Dollar is the placeholder of PostgreSQL: $1, $2, …
func Dollar(n int) string { return fmt.Sprintf("$%d", n) }

// Create makes the table, unless it exists.
func (s SQL) Create(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, s.statement(`CREATE TABLE IF NOT EXISTS %s (
		resource VARCHAR(512) NOT NULL PRIMARY KEY,
		token    BIGINT       NOT NULL,
		owner    VARCHAR(256) NOT NULL
	)`))
	if err != nil {
		return fmt.Errorf("fence: create: %w", err)
	}
	return nil
}

// attempts is how often Do begins, if somebody else makes the same fence.
const attempts = 3

// Do raises the fence of a resource to a claim and runs f, all in one
// transaction, which is committed if f returns nil. A claim that is stale is
// refused with a [*StaleError], and f is not run. Raising comes first, and locks
// the fence until the end of the transaction, so that no other claim comes
// between the check and what f does.
//
// A transaction that fails has not raised the fence either.
func (s SQL) Do(ctx context.Context, db *sql.DB, resource string, by Claim, f func(*sql.Tx) error) error {
	for n := 1; ; n++ {
		err := s.once(ctx, db, resource, by, f)
		if !errors.Is(err, ErrRetry) || n == attempts {
			return err
		}
	}
}

func (s SQL) once(ctx context.Context, db *sql.DB, resource string, by Claim, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	if err := s.Raise(ctx, tx, resource, by); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Raise is the first part of [SQL.Do], for transactions that the caller begins
// and commits: it comes before the first read of the resource. If the error
// matches ErrRetry the whole transaction is to be rolled back and repeated.
func (s SQL) Raise(ctx context.Context, tx *sql.Tx, resource string, by Claim) error {
	if err := by.check(resource); err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx,
		s.statement(`UPDATE %s SET token = ?, owner = ? WHERE resource = ? AND (token < ? OR token = ? AND owner = ?)`),
		by.Token, by.Owner, resource, by.Token, by.Token, by.Owner)
	if err != nil {
		return fmt.Errorf("fence: raise: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	// Refused, or there is no fence yet, or the database counts only rows that
	// have changed by it, and the claim is the one that stands there.
	greatest, err := s.greatest(ctx, tx, resource)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.first(ctx, tx, resource, by)
	case err != nil:
		return fmt.Errorf("fence: raise: %w", err)
	case greatest != by:
		return &StaleError{Resource: resource, Claim: by, Greatest: greatest}
	}
	return nil
}

func (s SQL) greatest(ctx context.Context, tx *sql.Tx, resource string) (c Claim, err error) {
	row := tx.QueryRowContext(ctx, s.statement(`SELECT token, owner FROM %s WHERE resource = ?`), resource)
	err = row.Scan(&c.Token, &c.Owner)
	return c, err
}

// first makes a fence.
func (s SQL) first(ctx context.Context, tx *sql.Tx, resource string, by Claim) error {
	_, err := tx.ExecContext(ctx, s.statement(`INSERT INTO %s (resource, token, owner) VALUES (?, ?, ?)`),
		resource, by.Token, by.Owner)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRetry, err)
	}
	return nil
}

// statement puts the name of the table and the placeholders into a statement.
func (s SQL) statement(format string) string {
	parts := strings.Split(fmt.Sprintf(format, cmp.Or(s.Table, "fence")), "?")
	if s.Placeholder == nil {
		return strings.Join(parts, "?")
	}
	var b strings.Builder
	for i, part := range parts[:len(parts)-1] {
		b.WriteString(part + s.Placeholder(i+1))
	}
	return b.String() + parts[len(parts)-1]
}
