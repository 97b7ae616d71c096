package fence_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/leasehold-go/leasehold/fence"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

var dollar = fence.SQL{Placeholder: fence.Dollar}

func openPostgres(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	check(t, err)
	db.SetMaxOpenConns(20)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	check(t, dollar.Create(t.Context(), db))
	return db
}

func nothing(*sql.Tx) error { return nil }

// race has two claims come at the same time, of tokens 1 and 2.
func race(t *testing.T, db *sql.DB, resource string) (first, second error) {
	t.Helper()
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = dollar.Do(t.Context(), db, resource, by(int64(i+1), fmt.Sprint("owner ", i)), nothing)
		})
	}
	wg.Wait()
	return errs[0], errs[1]
}

// Two holders come to a resource that has no fence yet, the older of them late.
func TestPostgres_HR_F3_GreatestOfTwoFirstClaimsIsNotRefused(t *testing.T) {
	s := postgrestest.Shared(t)
	// Only the first lets the later claim see the other one after its update.
	for isolation, rounds := range map[string]int{"read committed": 150, "repeatable read": 20, "serializable": 20} {
		t.Run(isolation, func(t *testing.T) {
			db := openPostgres(t, s.Database(t)+"&default_transaction_isolation="+url.PathEscape(isolation))
			for i := range rounds {
				resource := fmt.Sprint(i)
				older, newer := race(t, db, resource)
				if newer != nil {
					t.Fatalf("round %d: the greatest claim is refused: %v", i, newer)
				}
				if older != nil {
					wantStale(t, older, by(2, "owner 1"))
				}
			}
		})
	}
}

// Another claim raises the fence during a transaction that sees an older state of the
// database.
func TestPostgres_HR_F3_SerializationFailuresAreToBeRepeated(t *testing.T) {
	db := openPostgres(t, postgrestest.Shared(t).URL())
	check(t, dollar.Do(t.Context(), db, "r", by(1, "a"), nothing))
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	check(t, err)
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(t.Context(), "SELECT 1").Scan(new(int)); err != nil { // it sees the present state
		t.Fatal(err)
	}
	check(t, dollar.Do(t.Context(), db, "r", by(2, "b"), nothing))
	if err := dollar.Raise(t.Context(), tx, "r", by(3, "c")); !errors.Is(err, fence.ErrRetry) {
		t.Errorf("%v, want that it is to be repeated", err)
	}
}
