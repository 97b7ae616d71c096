package sqlitestore

import (
	"path/filepath"
	"testing"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
)

func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	tabletest.Run(t, func(t testing.TB) roomdriver.Table {
		table, err := open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return table
	})
}
