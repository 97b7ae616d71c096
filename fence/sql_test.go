package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/fence"
)

// database is a database that gives prepared answers to statements, and records them.
// Package examples/fencing runs the same code on a real one.
type database struct {
	seen   []string
	insert []error // of the next inserts
	// row is the fence in the table; changed is how many rows an update reports as changed.
	row     []driver.Value
	changed int64
	// late is the answer to updates after the first: the fence was made in between.
	late   int64
	lower  int64 // rows that an update reports as lowered, before another claim raises them
	clash  error // of an update
	commit error
	alike  int64 // rows that are found by names which are not theirs
}

func (d *database) open() *sql.DB { return sql.OpenDB(d) }

func (d *database) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *database) Driver() driver.Driver                        { return nil }
func (d *database) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not used") }
func (d *database) Close() error                                 { return nil }
func (d *database) Begin() (driver.Tx, error)                    { d.note("BEGIN"); return d, nil }
func (d *database) Commit() error                                { d.note("COMMIT"); return d.commit }
func (d *database) Rollback() error                              { d.note("ROLLBACK"); return nil }
func (d *database) note(text string)                             { d.seen = append(d.seen, text) }

func (d *database) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	d.note(query)
	if strings.HasPrefix(query, "INSERT") && len(d.insert) > 0 {
		err := d.insert[0]
		d.insert = d.insert[1:]
		return driver.RowsAffected(1), err
	}
	if strings.HasPrefix(query, "UPDATE") && d.clash != nil {
		return nil, d.clash
	}
	if strings.Contains(query, "token = token - 1") {
		d.changed = max(d.changed, d.lower)
		return driver.RowsAffected(d.lower), nil
	}
	changed := d.changed
	d.changed = max(d.changed, d.late)
	return driver.RowsAffected(changed), nil
}

func (d *database) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	d.note(query)
	if strings.Contains(query, "COUNT(*)") {
		return &rows{columns: []string{"count"}, row: []driver.Value{d.alike}}, nil
	}
	return &rows{columns: []string{"token", "owner"}, row: d.row}, nil
}

type rows struct {
	columns []string
	row     []driver.Value
}

func (r *rows) Columns() []string { return r.columns }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(dest, r.row)
	r.row = nil
	return nil
}

func (d *database) verbs() []string {
	var verbs []string
	for _, text := range d.seen {
		verb, _, _ := strings.Cut(text, " ")
		verbs = append(verbs, verb)
	}
	return verbs
}

// state is an error of a driver with the SQLSTATE of the standard.
type state string

func (s state) Error() string    { return "rolled back" }
func (s state) SQLState() string { return string(s) }

// TestSQL_HR_F3_StepsOfATransaction: one that met another is repeated, and its caller repeats it if
// the error matches ErrRetry. It must not after a commit of unknown outcome, and cannot where a
// right is missing.
func TestSQL_HR_F3_StepsOfATransaction(t *testing.T) {
	const (
		attempt = "BEGIN UPDATE ROLLBACK "
		looks   = "BEGIN UPDATE SELECT INSERT ROLLBACK "
		done    = "BEGIN UPDATE work COMMIT"
		undone  = "BEGIN UPDATE work ROLLBACK"
	)
	unique, failed := errors.New("duplicate key"), errors.New("no balance")
	deadlock := fmt.Errorf("pq: %w", state("40P01"))
	mysql := errors.New("Error 1213 (40001): Deadlock found when trying to get lock")
	inserts := func(err error) database { return database{insert: slices.Repeat([]error{err}, 11)} }
	alpha, beta := []driver.Value{int64(5), "alpha"}, []driver.Value{int64(5), "beta"}
	for name, row := range map[string]struct {
		db    database
		work  error
		want  string
		err   error
		again bool
		stale fence.Claim
	}{
		"greater":                              {db: database{changed: 1}, want: done},
		"failed":                               {db: database{changed: 1}, work: failed, want: undone, err: failed},
		"first":                                {db: database{insert: []error{nil}}, want: "BEGIN UPDATE SELECT INSERT work COMMIT"},
		"equal, where only changed rows count": {db: database{row: alpha, lower: 1}, want: "BEGIN UPDATE SELECT UPDATE UPDATE work COMMIT"},
		"smaller": {
			db:   database{row: []driver.Value{int64(7), "beta"}},
			want: "BEGIN UPDATE SELECT ROLLBACK", err: fence.ErrStale, stale: by(7, "beta"),
		},
		"equal of another":      {db: database{row: beta}, want: "BEGIN UPDATE SELECT ROLLBACK", err: fence.ErrStale, stale: by(5, "beta")},
		"first next to another": {db: database{insert: []error{unique, nil}}, want: looks + "BEGIN UPDATE SELECT INSERT work COMMIT"},
		"made by a smaller one since the update looked": {
			db:   database{row: []driver.Value{int64(4), "beta"}, late: 1},
			want: "BEGIN UPDATE SELECT UPDATE work COMMIT",
		},
		"made by its own since the update looked": {
			db:   database{row: alpha, late: 1, lower: 1},
			want: "BEGIN UPDATE SELECT UPDATE UPDATE work COMMIT",
		},
		"never first":               {db: inserts(unique), want: strings.Repeat(looks, 10), err: unique, again: true},
		"serialization":             {db: database{clash: state("40001")}, want: strings.Repeat(attempt, 10), err: state("40001"), again: true},
		"deadlock":                  {db: database{clash: deadlock}, want: strings.Repeat(attempt, 10), err: deadlock, again: true},
		"deadlock of MySQL":         {db: database{clash: mysql}, want: strings.Repeat(attempt, 10), err: mysql, again: true},
		"no such table":             {db: database{clash: state("42P01")}, want: attempt, err: state("42P01")},
		"commit that met another":   {db: database{changed: 1, commit: state("40001")}, want: done, err: state("40001"), again: true},
		"commit of unknown outcome": {db: database{changed: 1, commit: state("40003")}, want: done, err: state("40003")},
		"commit with a lost answer": {db: database{changed: 1, commit: io.ErrUnexpectedEOF}, want: done, err: io.ErrUnexpectedEOF},
		"work that met another":     {db: database{changed: 1}, work: state("40001"), want: undone, err: state("40001"), again: true},
		"work that failed":          {db: database{changed: 1}, work: state("23505"), want: undone, err: state("23505")},
		"fence that is there":       {db: inserts(state("23505")), want: strings.Repeat(looks, 10), err: state("23505"), again: true},
		"no right to insert":        {db: inserts(state("42501")), want: looks, err: state("42501")},
	} {
		t.Run(name, func(t *testing.T) {
			db := row.db.open()
			defer db.Close()
			err := fence.SQL{}.Do(t.Context(), db, "orders/42", by(5, "alpha"), func(*sql.Tx) error {
				row.db.note("work")
				return row.work
			})
			if !errors.Is(err, row.err) || row.err == nil && err != nil || errors.Is(err, fence.ErrRetry) != row.again {
				t.Errorf("error %v, want %v", err, row.err)
			}
			if got := strings.Join(row.db.verbs(), " "); got != strings.TrimSpace(row.want) {
				t.Errorf("did %s, want %s", got, row.want)
			}
			if row.stale.Token > 0 {
				wantStale(t, err, row.stale)
			}
		})
	}
}

// A transaction of MySQL that has read something already sees the fence as it was then,
// when it had its own claim. Its update sees that a greater one has come since.
func TestSQL_RaiseIsNotDeceivedByASnapshot(t *testing.T) {
	d := &database{row: []driver.Value{int64(5), "alpha"}}
	db := d.open()
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	check(t, err)
	defer func() { _ = tx.Rollback() }()
	if err := (fence.SQL{}).Raise(t.Context(), tx, "orders/42", by(5, "alpha")); !errors.Is(err, fence.ErrRetry) {
		t.Errorf("error %v, want ErrRetry", err)
	}
}

// TestSQL_HR_F4_WritesStatementsAsTheDatabaseWantsThem: on MySQL and MariaDB, which ignore case by
// default, the columns are binary; other databases read a comment there.
func TestSQL_HR_F4_WritesStatementsAsTheDatabaseWantsThem(t *testing.T) {
	d := database{insert: []error{nil}}
	db := d.open()
	defer db.Close()
	s := fence.SQL{Table: "ops.fences", Placeholder: fence.Dollar}
	check(t, s.Create(t.Context(), db))
	check(t, s.Do(t.Context(), db, "r", by(1, "a"), func(*sql.Tx) error { return nil }))
	for _, want := range []string{
		"CREATE TABLE IF NOT EXISTS ops.fences (",
		"resource VARCHAR(512) /*! CHARACTER SET binary */ NOT NULL PRIMARY KEY",
		"owner    VARCHAR(256) /*! CHARACTER SET binary */ NOT NULL",
		"SELECT COUNT(*) FROM ops.fences WHERE resource IN ($1, $2) OR resource = $3 AND owner IN ($4, $5)",
		"UPDATE ops.fences SET token = $1, owner = $2 WHERE resource = $3 AND (token < $4 OR token = $5 AND owner = $6)",
		"SELECT token, owner FROM ops.fences WHERE resource = $1",
		"INSERT INTO ops.fences (resource, token, owner) VALUES ($1, $2, $3)",
	} {
		if !slices.ContainsFunc(d.seen, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("%q is not among %q", want, d.seen)
		}
	}
}

func TestSQL_HR_F4_TableThatTakesDifferentNamesForOneIsRefused(t *testing.T) {
	for _, alike := range []int64{0, 1} {
		d := database{alike: alike}
		db := d.open()
		defer db.Close()
		err := fence.SQL{}.Create(t.Context(), db)
		if errors.Is(err, fence.ErrInvalid) != (alike > 0) || alike == 0 && err != nil {
			t.Errorf("%d equal names: %v", alike, err)
		}
		if got := d.verbs()[len(d.verbs())-1]; got != "ROLLBACK" {
			t.Errorf("the trial row ends with %s", got)
		}
	}
}

func TestClaim_OutOfBoundsIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	long := strings.Repeat("x", 513)
	for _, row := range []struct {
		resource string
		claim    fence.Claim
	}{
		{"", by(1, "a")}, {long, by(1, "a")},
		{"r", by(0, "a")}, {"r", by(-1, "a")}, {"r", by(1<<53, "a")},
		{"r", by(1, "")}, {"r", by(1, long)},
	} {
		d := database{}
		db := d.open()
		err := fence.SQL{}.Do(t.Context(), db, row.resource, row.claim, nil)
		if !errors.Is(err, fence.ErrInvalid) || slices.Contains(d.verbs(), "UPDATE") {
			t.Errorf("%q, %v: %v", row.resource, row.claim, err)
		}
		_, err = fence.Redis{}.Do(t.Context(), row.resource, row.claim, "", nil)
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q, %v: %v", row.resource, row.claim, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
