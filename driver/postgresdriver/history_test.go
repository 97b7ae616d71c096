package postgresdriver

import (
	"net/url"
	"testing"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/play"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// TestTransact_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote plays many processes that replace
// few records while their sessions are killed.
func TestTransact_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	live.Test(t)
	server := postgrestest.Shared(t)
	serializable := server.URL() + "&create=true&options=" + url.QueryEscape("-c default_transaction_isolation=serializable")
	var tables []roomdriver.Table
	for range 4 {
		table := openURL(t, serializable).table
		tables = append(tables, table, table, table, table)
	}
	c := play.StartChain(t, tables...)
	boss := admin(t, server.URL())
	rounds := 80
	if testing.Short() {
		rounds /= 2
	}
	for n := range rounds {
		c.Await(5*n, 0)
		exec(t, boss, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend' AND random() < 0.1`)
	}
	c.Await(5*rounds, 1)
	c.Judge()
}
