package mysqldriver

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
)

// TestSweep_IsRepeatedAfterADeadlock makes a sweep wait for a transaction that then waits for the
// sweep. The server rolls back the smaller of the two, which is the sweep.
func TestSweep_IsRepeatedAfterADeadlock(t *testing.T) {
	server := mysqltest.Shared(t)
	const row = "INSERT INTO leasehold (name, record, ends, written) VALUES ('%s', '', %s, 0);"
	server.Exec(t, SQL()+fmt.Sprintf(row, "over", "0"))
	d := warm(t, openURL(t, server.URL()))
	db := server.DB(t)
	eventually(t, func() (swept bool) { // by the driver itself, which sweeps again in a minute
		noError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) = 0 FROM leasehold WHERE name = 'over'").Scan(&swept))
		return swept
	})
	server.Exec(t, fmt.Sprintf(row, "a", "1")+fmt.Sprintf(row, "b", "2"))
	tx, err := db.BeginTx(t.Context(), nil)
	noError(t, err)
	for i := range 20 {
		_, err = tx.ExecContext(t.Context(), fmt.Sprintf(row, fmt.Sprint("more", i), "1 << 62"))
		noError(t, err)
	}
	_, err = tx.ExecContext(t.Context(), "UPDATE leasehold SET written = 1 WHERE name = 'b'")
	noError(t, err)
	type swept struct {
		n   int
		err error
	}
	done := make(chan swept)
	go func() {
		n, err := d.table.Sweep(t.Context(), 100)
		done <- swept{n, err}
	}()
	eventually(t, func() bool {
		var name string
		var waits int
		noError(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").Scan(&name, &waits))
		return waits > 0
	})
	_, err = tx.ExecContext(t.Context(), "UPDATE leasehold SET written = 1 WHERE name = 'a'")
	noError(t, err)
	noError(t, tx.Rollback())
	if got := <-done; got.n != 2 || got.err != nil {
		t.Errorf("%d rows are removed, %v; want 2", got.n, got.err)
	}
}
