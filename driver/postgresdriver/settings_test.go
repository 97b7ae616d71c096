package postgresdriver

import (
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestCheck_ATableThatACrashEmptiesIsUnsafe(t *testing.T) {
	server := postgrestest.Shared(t)
	boss := admin(t, server.URL())
	exec(t, boss, strings.Replace(SQL(), "CREATE TABLE", "CREATE UNLOGGED TABLE", 1))
	d := openURL(t, server.URL())
	if f := findings(t, d)["persistence"]; f.Severity != driver.Unsafe || !strings.Contains(f.What, "UNLOGGED") || !strings.Contains(f.Remedy, "SET LOGGED") {
		t.Errorf("%+v", f)
	}
	exec(t, boss, `ALTER TABLE leasehold SET LOGGED`)
	if f := findings(t, d)["persistence"]; f.Severity != driver.Good {
		t.Errorf("%+v", f)
	}
}

// Where statements are sent as text, so are the answers.
func TestAcquire_DateStyleChangesNothing(t *testing.T) {
	server := postgrestest.Shared(t)
	for _, style := range []string{"German", "SQL,DMY", "Postgres,MDY"} {
		t.Run(style, func(t *testing.T) {
			d := openURL(t, server.URL()+"&create=true"+asText+"&datestyle="+url.QueryEscape(style))
			if got := state(t, d, mutex(style, "a")); got != driver.Granted {
				t.Fatal(got)
			}
			if got := state(t, d, mutex(style, "b")); got != driver.Busy {
				t.Error(got)
			}
			if snap, err := d.Inspect(t.Context(), style); err != nil || len(snap.Holders) != 1 {
				t.Errorf("%+v, %v", snap, err)
			}
			if _, _, err := d.List(t.Context(), "", ""); err != nil {
				t.Error(err)
			}
			if f := findings(t, d)["clock"]; f.Severity != driver.Good {
				t.Errorf("%+v", f)
			}
		})
	}
}
