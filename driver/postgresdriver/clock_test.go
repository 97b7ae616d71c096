//go:build linux

package postgresdriver

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestClock_LeasesAndTokensGoByTheServers(t *testing.T) {
	server, clock := postgrestest.StartWithClock(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	first, err := d.Acquire(t.Context(), mutex("k", "a"))
	if err != nil || first.State != driver.Granted {
		t.Fatalf("%+v, %v", first, err)
	}
	clock.Step(-30 * time.Minute)
	d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, err error) {
		if err != nil || reply.State != driver.Granted {
			t.Errorf("renewed after a step back: %+v, %v", reply, err)
		}
	})
	if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil {
		t.Fatal(err)
	}
	second, err := d.Acquire(t.Context(), mutex("k", "b"))
	if err != nil || second.State != driver.Granted || second.Token <= first.Token {
		t.Errorf("after a step back: %+v, %v; the token before was %d", second, err, first.Token)
	}
	clock.Step(2 * time.Hour)
	third, err := d.Acquire(t.Context(), mutex("k", "c"))
	if err != nil || third.State != driver.Granted || third.Token <= second.Token {
		t.Errorf("after a step forward: %+v, %v", third, err)
	}
	d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "b", TTL: time.Minute}}, func(_ int, reply driver.Reply, err error) {
		if err != nil || reply.State != driver.Gone {
			t.Errorf("the former holder: %+v, %v", reply, err)
		}
	})
	if f := findings(t, d)["clock"]; f.Severity != driver.Warning {
		t.Errorf("%+v", f)
	}
}

func TestSweep_NamesUsedOnceLeaveAnEmptyTable(t *testing.T) {
	server, clock := postgrestest.StartWithClock(t)
	if err := warm(t, openURL(t, server.URL()+"&create=true")).Close(); err != nil {
		t.Fatal(err)
	}
	d := openURL(t, server.URL()) // without writes, so it does not sweep in the background
	boss := admin(t, server.URL())
	// As many rows as the sweeps of some seconds remove.
	exec(t, boss, `INSERT INTO leasehold SELECT 'job/' || n, record, ends FROM leasehold, generate_series(1, 2500) AS n WHERE key = 'warm-up'`)
	if removed, err := d.table.Sweep(t.Context(), 1000); removed != 0 || err != nil {
		t.Errorf("%d rows that still count were removed, %v", removed, err)
	}
	clock.Step(2 * time.Hour)
	exec(t, boss, `BEGIN`)
	exec(t, boss, `SELECT FROM leasehold WHERE key = 'job/7' FOR UPDATE`) // another session uses the row
	for _, want := range []int{1000, 1000, 500} {
		if removed, err := d.table.Sweep(t.Context(), 1000); removed != want || err != nil {
			t.Errorf("%d rows removed, want %d; %v", removed, want, err)
		}
	}
	exec(t, boss, `COMMIT`)
	if removed, err := d.table.Sweep(t.Context(), 1000); removed != 1 || err != nil {
		t.Errorf("%d rows removed, %v", removed, err)
	}
}

// An expired note is used again, and a sweep runs between the read and the write. The new
// note must stay, since it rejects an id.
func TestSweep_RemovesNoNoteThatIsBeingWritten(t *testing.T) {
	server := postgrestest.Shared(t)
	if err := warm(t, openURL(t, server.URL()+"&create=true")).Close(); err != nil {
		t.Fatal(err)
	}
	d, sweeper := openURL(t, server.URL()), openURL(t, server.URL()) // do not sweep in the background
	boss := admin(t, server.URL())
	exec(t, boss, `INSERT INTO leasehold VALUES ('note', $1, 0)`, record("of long ago"))
	_, err := d.table.Transact(t.Context(), []roomdriver.Item{{Key: "k", Note: "note"}}, func(_ int, found roomdriver.Found) roomdriver.Change {
		if got := textOf(found.Note); got != "of long ago" {
			t.Errorf("the note is %q", got)
		}
		if _, err := sweeper.table.Sweep(t.Context(), 1000); err != nil {
			t.Error(err)
		}
		return roomdriver.Change{Record: record("k"), Note: record("of now")}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := d.table.Read(t.Context(), "note"); err != nil || textOf(got) != "of now" {
		t.Errorf("the note is %q, %v", got, err)
	}
}

// TestSweep_AMillionNamesLeaveAnEmptyTable removes the rows of a million jobs, a bounded number
// in each sweep.
func TestSweep_AMillionNamesLeaveAnEmptyTable(t *testing.T) {
	skip.Nightly(t, "it takes a minute")
	server, clock := postgrestest.StartWithClock(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=20s"))
	boss := admin(t, server.URL())
	// VACUUM does not truncate the file while another session uses the table.
	exec(t, boss, `ALTER TABLE leasehold SET (autovacuum_enabled = false)`)
	const names, limit = 1_000_000, 1000
	exec(t, boss, `INSERT INTO leasehold SELECT 'job/' || n, record, ends FROM leasehold, generate_series(1, $1) AS n WHERE key = 'warm-up'`, names)
	clock.Step(2 * time.Hour)
	sum, longest, start := 0, time.Duration(0), time.Now()
	for {
		began := time.Now()
		removed, err := d.table.Sweep(t.Context(), limit)
		if err != nil || removed > limit {
			t.Fatalf("%d rows removed, %v", removed, err)
		}
		if removed == 0 {
			break
		}
		sum, longest = sum+removed, max(longest, time.Since(began))
	}
	took := time.Since(start)
	var rows, size int
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	exec(t, boss, `VACUUM leasehold`)
	if err := boss.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM leasehold), pg_relation_size('leasehold')`).Scan(&rows, &size); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows in %v, the longest sweep took %v", sum, took, longest)
	if sum < names || rows != 0 || size != 0 {
		t.Errorf("%d rows were removed; %d rows and %d bytes are left", sum, rows, size)
	}
}
