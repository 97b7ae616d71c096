//go:build linux || darwin

package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// TestSchema_OneRoleMigratesAnotherLocks runs the printed statements twice, as a role that owns
// the schema and may create no other one, and commands as a role with the documented rights. These
// rights suffice to wake waiters, and do not include the creation of tables. Doctor recognizes one
// server behind two tables.
func TestSchema_OneRoleMigratesAnotherLocks(t *testing.T) {
	live.Test(t)
	server := postgrestest.Start(t)
	execute := func(url, sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			defer conn.Close(t.Context())
			_, err = conn.Exec(t.Context(), sql)
		}
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	as := func(role string) string { return strings.Replace(server.URL(), "tester@", role+"@", 1) }
	execute(server.URL(), `CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; CREATE SCHEMA locks AUTHORIZATION owner`)
	place := "&schema=locks&table=jobs&create=true"
	sql, code := run(t, "schema", "--store", as("app")+place)
	if code != 0 {
		t.Fatalf("code %d: %s", code, sql)
	}
	execute(as("owner"), sql+sql+`GRANT USAGE ON SCHEMA locks TO app; GRANT USAGE ON SEQUENCE locks.jobs_tokens TO app;
		GRANT SELECT, INSERT, UPDATE, DELETE ON locks.jobs TO app`)
	if out, code := run(t, "run", "--store", as("app")+place, "job", "echo", "done"); code != 0 || out != "done\n" {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := run(t, "doctor", "--store", as("app")+place); code != 0 || !regexp.MustCompile(`(?m)^ok +wake-up`).MatchString(out) {
		t.Error(out)
	}
	if out, code := run(t, "doctor", as("app")+place, server.URL()+"&create=true"); code != 1 || !strings.Contains(out, "one and the same server") {
		t.Errorf("two tables of a server as two stores: code %d: %s", code, out)
	}
}
