package main

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/fence"
)

// openFile opens a database of several connections.
func openFile(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "bank.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := (fence.SQL{}).Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestFence_SQLRefusesWhatComesAfterAGreaterToken(t *testing.T) {
	db := openFile(t)
	raise := func(token int64, owner string) error {
		return fence.SQL{}.Do(t.Context(), db, "r", fence.Claim{Token: token, Owner: owner}, func(*sql.Tx) error { return nil })
	}
	for _, step := range []struct {
		token    int64
		owner    string
		greatest fence.Claim // of a refusal; zero if it passes
	}{
		{5, "alpha", fence.Claim{}},
		{5, "alpha", fence.Claim{}},
		{5, "beta", fence.Claim{Token: 5, Owner: "alpha"}},
		{1<<53 - 2, "beta", fence.Claim{}},
		{1<<53 - 3, "alpha", fence.Claim{Token: 1<<53 - 2, Owner: "beta"}},
		{1<<53 - 1, "alpha", fence.Claim{}},
	} {
		err := raise(step.token, step.owner)
		var stale *fence.StaleError
		switch {
		case step.greatest.Token == 0 && err != nil:
			t.Errorf("%d of %s: %v", step.token, step.owner, err)
		case step.greatest.Token != 0 && (!errors.As(err, &stale) || stale.Greatest != step.greatest):
			t.Errorf("%d of %s: %v, want a refusal after %v", step.token, step.owner, err, step.greatest)
		}
	}
}

// TestFence_SQLWritersAtTheSameTimeNeverGoBack has writers with rising tokens
// race for one row: the last write has the greatest token.
func TestFence_SQLWritersAtTheSameTimeNeverGoBack(t *testing.T) {
	db := openFile(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE log (token INTEGER)`); err != nil {
		t.Fatal(err)
	}
	const writers = 30
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			token := int64(i + 1)
			err := fence.SQL{}.Do(t.Context(), db, "log", fence.Claim{Token: token, Owner: "w"}, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), `INSERT INTO log VALUES (?)`, token)
				return err
			})
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rows, err := db.QueryContext(t.Context(), `SELECT token FROM log ORDER BY rowid`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last := int64(0)
	for rows.Next() {
		var token int64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		if token <= last {
			t.Errorf("%d was written after %d", token, last)
		}
		last = token
	}
	if err := rows.Err(); err != nil || last != writers {
		t.Errorf("last written: %d, %v", last, err)
	}
}

func TestFence_HR_F4_TableWithACollationIsRefused(t *testing.T) {
	db := openFile(t)
	for _, column := range []string{"resource", "owner"} {
		declared := map[string]string{"resource": "TEXT", "owner": "TEXT"}
		declared[column] = "TEXT COLLATE NOCASE"
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`CREATE TABLE %s_alike (resource %s PRIMARY KEY, token BIGINT, owner %s)`,
			column, declared["resource"], declared["owner"]))
		if err != nil {
			t.Fatal(err)
		}
		err = fence.SQL{Table: column + "_alike"}.Create(t.Context(), db)
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s takes different names for one, and the table is taken: %v", column, err)
		}
	}
}
