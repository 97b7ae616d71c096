package main

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/fence"
)

func TestFence_HR_F4_TableWithACollationIsRefused(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
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
