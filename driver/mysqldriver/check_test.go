package mysqldriver

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
)

func TestCheck_ASoundServerIsGood(t *testing.T) {
	server := mysqltest.Start(t, "--innodb-flush-log-at-trx-commit=1", "--log-bin", "--sync-binlog=1")
	d := warm(t, openURL(t, server.URL()+"create=true&timeout=2s"))
	for check, f := range findings(t, d) {
		if f.Severity != driver.Good && check != "replication" {
			t.Errorf("%+v", f)
		}
	}
}

func TestCheck_FindsWhatMakesLocksUnsafe(t *testing.T) {
	server := mysqltest.Start(t, "--log-bin", "--max-connections=12")
	for _, sql := range []string{
		SQL(), SQL(WithTable("lacking")), SQL(WithTable("brief")), "ALTER TABLE brief ENGINE = Aria", SQL(WithTable("later")),
		"ALTER TABLE later COMMENT = 'leasehold 2: locks'", "CREATE USER app@'%'", "GRANT SELECT, INSERT ON lacking TO app@'%'",
	} {
		server.Exec(t, sql)
	}
	replica := mysqltest.Start(t, "--read-only")
	replica.Exec(t, SQL())
	app := strings.Replace(server.URL(), "tester@", "app@", 1)
	for _, row := range []struct {
		check, url string
		severity   driver.Severity
		says       string
	}{
		{"role", replica.URL(), driver.Unsafe, "connect to the primary"},
		{"table", server.URL() + "table=none", driver.Unsafe, "CREATE TABLE IF NOT EXISTS"},
		{"table", server.URL() + "table=none&create=true", driver.Notice, "no table `none`"},
		{"table", server.URL() + "table=later", driver.Warning, "leasehold 2"},
		{"rights", app + "table=lacking", driver.Unsafe, "lacks UPDATE, DELETE on `lacking`"},
		{"engine", server.URL() + "table=brief", driver.Unsafe, "Aria"},
		{"innodb_flush_log_at_trx_commit", server.URL(), driver.Warning, "set innodb_flush_log_at_trx_commit=1"},
		{"sync_binlog", server.URL(), driver.Warning, "set sync_binlog=1"},
		{"replication", server.URL(), driver.Notice, "binary log"},
		{"clock", server.URL(), driver.Good, "differs from ours"},
		{"lock_wait_timeout", server.URL(), driver.Good, "before"},
	} {
		d := openURL(t, row.url)
		finds(t, d, row.check, row.severity, row.says)
		noError(t, d.Close())
	}
	mine, err := New(server.DB(t, "autocommit=false"))
	noError(t, err)
	for check, severity := range map[string]driver.Severity{"autocommit": driver.Unsafe, "lock_wait_timeout": driver.Notice} {
		finds(t, mine, check, severity, "")
	}
	many := server.DB(t)
	for range 9 {
		conn, err := many.Conn(t.Context())
		noError(t, err)
		defer conn.Close()
	}
	finds(t, mine, "max_connections", driver.Warning, "")
}

func TestCheck_Versions(t *testing.T) {
	for version, want := range map[string]bool{
		"8.0.36": true, "8.4.3": true, "9.1.0": true, "10.6.18-MariaDB": true, "11.4.2-MariaDB-log": true,
		"10.5.26-MariaDB": false, "5.7.44-log": false, "": false,
	} {
		if supported(version) != want {
			t.Errorf("%q: supported is not %t", version, want)
		}
	}
}
