package postgresdriver

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestCheck_ASoundServerIsGood(t *testing.T) {
	server := postgrestest.Start(t, "synchronous_commit=on", "fsync=on")
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	for check, f := range findings(t, d) {
		if f.Severity != driver.Good && check != "replication" {
			t.Errorf("%+v", f)
		}
	}
}

func TestCheck_FindsWhatMakesLocksUnsafe(t *testing.T) {
	server := postgrestest.Start(t, "autovacuum=off", "wal_level=replica")
	boss := admin(t, server.URL())
	for _, sql := range []string{
		SQL(WithTable("lacking")), SQL(WithTable("later")), `COMMENT ON TABLE later IS 'leasehold 2: locks'`, `CREATE ROLE app LOGIN`,
		`GRANT SELECT, INSERT ON lacking TO app`, `CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'`,
		strings.Replace(SQL(WithTable("brief")), "CREATE TABLE", "CREATE UNLOGGED TABLE", 1),
	} {
		exec(t, boss, sql)
	}
	for _, row := range []struct {
		check, url string
		severity   driver.Severity
		says       string
	}{
		{"role", server.Standby(t).URL(), driver.Unsafe, "target_session_attrs"},
		{"table", server.URL(), driver.Unsafe, "CREATE TABLE IF NOT EXISTS"},
		{"table", server.URL() + "&table=later", driver.Warning, "leasehold 2"},
		{"rights", as("app", server.URL()) + "&table=lacking", driver.Unsafe, "lacks UPDATE, DELETE"},
		{"persistence", server.URL() + "&table=brief", driver.Unsafe, "UNLOGGED"}, // a crash empties it
		{"persistence", server.URL() + "&table=brief", driver.Unsafe, "SET LOGGED"},
		{"fsync", server.URL(), driver.Warning, "fsync=on"},
		{"synchronous_commit", server.URL(), driver.Warning, "synchronous_commit=on"},
		{"autovacuum", server.URL(), driver.Warning, "autovacuum=on"},
		{"replication", server.URL(), driver.Warning, "1 replicas follow"},
		{"encoding", strings.Replace(server.URL(), "/postgres?", "/latin?", 1), driver.Warning, "LATIN1"},
		{"pooler", server.Bouncer(t) + asText, driver.Notice, "listen="},
		{"timeouts", server.URL(), driver.Good, "20s"},
		{"clock", server.URL(), driver.Good, "differs from ours"},
	} {
		finds(t, openURL(t, row.url), row.check, row.severity, row.says)
	}
}
