package fence

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// SQL fences resources in a database. A table of the database has the greatest claim of each
// resource. The zero value is for databases with question marks as placeholders, such as MySQL
// and SQLite. It is safe for concurrent use.
//
// The table is made by [SQL.Create], or by the statement of [SQL.Schema]. Its columns must
// compare text byte by byte. With the usual collations of MySQL and MariaDB, "orders/A" would
// equal "orders/a ", and different owners would be equal.
type SQL struct {
	// Table is its name, as it is written in a statement. Default: fence.
	Table string
	// Placeholder is how the nth argument is written, counted from 1, such as
	// [Dollar]. Default: a question mark.
	Placeholder func(n int) string
}

// Dollar is the placeholder of PostgreSQL: $1, $2, …
func Dollar(n int) string { return fmt.Sprintf("$%d", n) }

// Schema returns the statement that makes the table, unless it exists. Every
// database accepts it. Only MySQL and MariaDB read the text in the comments.
func (s SQL) Schema() string {
	return s.statement(`CREATE TABLE IF NOT EXISTS %s (
		resource VARCHAR(512) /*! CHARACTER SET binary */ NOT NULL PRIMARY KEY,
		token    BIGINT NOT NULL,
		owner    VARCHAR(256) /*! CHARACTER SET binary */ NOT NULL
	)`)
}

// Create makes the table, unless it exists. The error matches ErrInvalid if there
// is a table with columns that do not compare text byte by byte.
func (s SQL) Create(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, s.Schema()); err != nil {
		return fmt.Errorf("fence: create: %w", err)
	}
	inexact, err := s.inexact(ctx, db)
	switch {
	case err != nil:
		return fmt.Errorf("fence: create: %w", err)
	case inexact:
		return fmt.Errorf("fence: create: the columns resource and owner of table %s have a collation that takes different names for one; they have to be binary: %w", s.table(), ErrInvalid)
	}
	return nil
}

// inexact reports whether the table finds a row by a different name. The row of this test is
// never committed.
func (s SQL) inexact(ctx context.Context, db *sql.DB) (bool, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	name := rand.Text()
	if err := s.insert(ctx, tx, name, Claim{Token: 1, Owner: name}); err != nil {
		return false, err
	}
	var found int
	lower, padded := strings.ToLower(name), name+" "
	row := tx.QueryRowContext(ctx, s.statement(`SELECT COUNT(*) FROM %s WHERE resource IN (?, ?) OR resource = ? AND owner IN (?, ?)`),
		lower, padded, name, lower, padded)
	err = row.Scan(&found)
	return found > 0, err
}

// attempts bounds how often Do begins if other transactions raise the same fence.
const attempts = 10

// Do raises the fence of a resource to a claim and runs f, both in one transaction, which
// it commits if f returns nil. A stale claim is refused with a [*StaleError], and f is
// not run. Raising comes first and locks the fence until the end of the transaction, so
// no other claim comes between the check and f.
//
// A transaction that conflicts with another is repeated as long as f has not run. If it
// conflicts after that, also if f returns the database's error, the error matches [ErrRetry]. A
// transaction that fails has not raised the fence, with one exception: if the answer to the
// commit is lost, it is unknown whether the fence was raised and the work of f committed. The
// error then matches neither ErrRetry nor ErrStale.
func (s SQL) Do(ctx context.Context, db *sql.DB, resource string, by Claim, f func(*sql.Tx) error) error {
	for n := 1; ; n++ {
		ran, err := s.once(ctx, db, resource, by, f)
		if !errors.Is(err, ErrRetry) || ran || n == attempts {
			return err
		}
	}
}

func (s SQL) once(ctx context.Context, db *sql.DB, resource string, by Claim, f func(*sql.Tx) error) (ran bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("fence: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	if err := s.Raise(ctx, tx, resource, by); err != nil {
		return false, err
	}
	if err := f(tx); err != nil {
		return true, clash(err)
	}
	if err := tx.Commit(); err != nil {
		return true, fmt.Errorf("fence: %w", clash(err))
	}
	return true, nil
}

// Raise is the first part of [SQL.Do], for transactions that the caller begins and
// commits. Call it before the first read of the transaction: from REPEATABLE READ on, the first
// read determines the snapshot of all later reads. If the error matches [ErrRetry], roll the
// transaction back and repeat it.
func (s SQL) Raise(ctx context.Context, tx *sql.Tx, resource string, by Claim) error {
	if err := by.check(resource); err != nil {
		return err
	}
	for again := false; ; again = true {
		raised, err := s.update(ctx, tx, resource, by)
		if raised || err != nil {
			return err
		}
		greatest, err := s.greatest(ctx, tx, resource)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return s.first(ctx, tx, resource, by)
		case err != nil:
			return fmt.Errorf("fence: raise: %w", clash(err))
		case greatest.Token > by.Token, greatest.Token == by.Token && greatest.Owner != by.Owner:
			return &StaleError{Resource: resource, Claim: by, Greatest: greatest}
		case greatest == by:
			return s.same(ctx, tx, resource, by)
		case again:
			return fmt.Errorf("fence: raise: %w", ErrRetry)
		}
		// The fence was made after the update, which finds and locks it now.
	}
}

// same locks a fence that was read with a claim equal to by. Either the update found the fence
// and the database counts only changed rows, or a greater claim has arrived since, and the read
// was from an older snapshot. So same changes the row, and changes it back.
func (s SQL) same(ctx context.Context, tx *sql.Tx, resource string, by Claim) error {
	result, err := tx.ExecContext(ctx,
		s.statement(`UPDATE %s SET token = token - 1 WHERE resource = ? AND token = ? AND owner = ?`),
		resource, by.Token, by.Owner)
	if err != nil {
		return fmt.Errorf("fence: raise: %w", clash(err))
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return fmt.Errorf("fence: raise: %w", cmp.Or(err, ErrRetry))
	}
	if raised, err := s.update(ctx, tx, resource, by); !raised || err != nil {
		return cmp.Or(err, fmt.Errorf("fence: raise: %w", ErrRetry))
	}
	return nil
}

// update raises a fence that is there and is not greater, and locks it.
func (s SQL) update(ctx context.Context, tx *sql.Tx, resource string, by Claim) (raised bool, err error) {
	result, err := tx.ExecContext(ctx,
		s.statement(`UPDATE %s SET token = ?, owner = ? WHERE resource = ? AND (token < ? OR token = ? AND owner = ?)`),
		by.Token, by.Owner, resource, by.Token, by.Token, by.Owner)
	if err != nil {
		return false, fmt.Errorf("fence: raise: %w", clash(err))
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (s SQL) greatest(ctx context.Context, tx *sql.Tx, resource string) (c Claim, err error) {
	row := tx.QueryRowContext(ctx, s.statement(`SELECT token, owner FROM %s WHERE resource = ?`), resource)
	err = row.Scan(&c.Token, &c.Owner)
	return c, err
}

// first makes a fence.
func (s SQL) first(ctx context.Context, tx *sql.Tx, resource string, by Claim) error {
	err := s.insert(ctx, tx, resource, by)
	switch code := state(err); {
	case err == nil:
		return nil
	case code != "" && !strings.HasPrefix(code, "23"): // not a duplicate key
		return fmt.Errorf("fence: raise: %w", clash(err))
	}
	return fmt.Errorf("fence: raise: %w: %w", ErrRetry, err)
}

func (s SQL) insert(ctx context.Context, tx *sql.Tx, resource string, by Claim) error {
	_, err := tx.ExecContext(ctx, s.statement(`INSERT INTO %s (resource, token, owner) VALUES (?, ?, ?)`),
		resource, by.Token, by.Owner)
	return err
}

// clash makes err match ErrRetry if the database rolled back one of two conflicting transactions:
// class 40 of the SQL standard, except 40003, after which the outcome is unknown.
func clash(err error) error {
	if code := state(err); strings.HasPrefix(code, "40") && code != "40003" || strings.Contains(err.Error(), "(40001)") {
		return fmt.Errorf("%w: %w", ErrRetry, err)
	}
	return err
}

// state returns the SQLSTATE of err, empty if the driver has no method for it: the driver of
// MySQL has it in the text only.
func state(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

func (s SQL) table() string { return cmp.Or(s.Table, "fence") }

// statement puts the name of the table and the placeholders into a statement.
func (s SQL) statement(format string) string {
	parts := strings.Split(fmt.Sprintf(format, s.table()), "?")
	if s.Placeholder == nil {
		return strings.Join(parts, "?")
	}
	var b strings.Builder
	for i, part := range parts[:len(parts)-1] {
		b.WriteString(part + s.Placeholder(i+1))
	}
	return b.String() + parts[len(parts)-1]
}
