package postgresdriver

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestTable(t *testing.T) {
	server := postgrestest.Shared(t)
	tabletest.Run(t, func(t testing.TB) roomdriver.Table {
		d, err := Open(server.URL() + "&create=true&timeout=20s")
		if err != nil {
			t.Fatal(err)
		}
		return d.table
	})
}
