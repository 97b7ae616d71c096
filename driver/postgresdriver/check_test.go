package postgresdriver

import (
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func findings(t *testing.T, d *Driver) map[string]driver.Finding {
	t.Helper()
	report, err := d.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]driver.Finding)
	for _, f := range report.Findings {
		all[f.Check] = f
	}
	return all
}

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
	} {
		exec(t, boss, sql)
	}
	replica := server.Standby(t)
	u, _ := url.Parse(server.URL())
	u.User = url.User("app")
	for check, row := range map[string]struct {
		url      string
		severity driver.Severity
		says     string
	}{
		"table":              {server.URL(), driver.Unsafe, "CREATE TABLE IF NOT EXISTS"},
		"role":               {replica.URL(), driver.Unsafe, "target_session_attrs"},
		"rights":             {u.String() + "&table=lacking", driver.Unsafe, "lacks UPDATE, DELETE"},
		"fsync":              {server.URL(), driver.Warning, "fsync=on"},
		"synchronous_commit": {server.URL(), driver.Warning, "synchronous_commit=on"},
		"autovacuum":         {server.URL(), driver.Warning, "autovacuum=on"},
		"replication":        {server.URL(), driver.Warning, "1 replicas follow"},
		"encoding":           {strings.Replace(server.URL(), "/postgres?", "/latin?", 1), driver.Warning, "LATIN1"},
		"pooler":             {server.Bouncer(t) + asText, driver.Notice, "listen="},
		"timeouts":           {server.URL(), driver.Good, "20s"},
		"clock":              {server.URL(), driver.Good, "differs from ours"},
	} {
		f := findings(t, openURL(t, row.url))[check]
		if text := f.What + f.Why + f.Remedy; f.Severity != row.severity || !strings.Contains(text, row.says) {
			t.Errorf("%s: %+v; want %q", check, f, row.says)
		}
	}
	if f := findings(t, openURL(t, server.URL()+"&table=later"))["table"]; f.Severity != driver.Warning || !strings.Contains(f.What, "leasehold 2") {
		t.Errorf("%+v", f)
	}
}
