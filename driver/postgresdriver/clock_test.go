//go:build linux

package postgresdriver

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestClock_LeasesAndTokensGoByTheServers(t *testing.T) {
	server, clock := postgrestest.StartWithClock(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	first := acquire(t, d, mutex("k", "a"), driver.Granted)
	clock.Step(-30 * time.Minute)
	renewed(t.Context(), t, d, "k")
	release(t, d, "k", "a")
	second := acquire(t, d, mutex("k", "a"), driver.Granted)
	if second.Token <= first.Token {
		t.Errorf("after a step back: token %d after %d", second.Token, first.Token)
	}
	clock.Step(2 * time.Hour)
	third := acquire(t, d, mutex("k", "c"), driver.Granted)
	if third.Token <= second.Token {
		t.Errorf("after a step forward: token %d after %d", third.Token, second.Token)
	}
	if got, err := renew(t.Context(), d, "k"); err != nil || got != driver.Gone {
		t.Errorf("the former holder: state %v, %v", got, err)
	}
	finds(t, d, "clock", driver.Warning, "")
}

func TestSweep_NamesUsedOnceLeaveAnEmptyTable(t *testing.T) {
	server, clock := postgrestest.StartWithClock(t)
	noError(t, warm(t, openURL(t, server.URL()+"&create=true")).Close())
	d := openURL(t, server.URL()) // without writes, so it does not sweep in the background
	boss := admin(t, server.URL())
	// As many rows as the sweeps of some seconds remove.
	exec(t, boss, `INSERT INTO leasehold SELECT 'job/' || n, record, ends FROM leasehold, generate_series(1, 2500) AS n WHERE key = 'warm-up'`)
	removes := func(want int) {
		t.Helper()
		if removed, err := d.table.Sweep(t.Context(), 1000); removed != want || err != nil {
			t.Errorf("%d rows removed, want %d; %v", removed, want, err)
		}
	}
	removes(0) // they still count
	clock.Step(2 * time.Hour)
	lockRow(t, boss, "job/7") // another session uses the row
	for _, want := range []int{1000, 1000, 500} {
		removes(want)
	}
	exec(t, boss, `COMMIT`)
	removes(1)
}

// An expired note is used again, and a sweep runs between the read and the write. The new
// note must stay, since it rejects an id.
func TestSweep_RemovesNoNoteThatIsBeingWritten(t *testing.T) {
	first, server := newStore(t, "")
	noError(t, first.Close())
	d, sweeper := openURL(t, server.URL()), openURL(t, server.URL()) // do not sweep in the background
	const endless = "\x01\x7f\xff\xff\xff\xff\xff\xff\xff"
	exec(t, admin(t, server.URL()), `INSERT INTO leasehold VALUES ('note', $1, 0)`, []byte(endless+"of long ago"))
	_, err := d.table.Transact(t.Context(), []roomdriver.Item{{Key: "k", Note: "note"}}, func(_ int, found roomdriver.Found) roomdriver.Change {
		if got := string(found.Note); got != endless+"of long ago" {
			t.Errorf("the note is %q", got)
		}
		if _, err := sweeper.table.Sweep(t.Context(), 1000); err != nil {
			t.Error(err)
		}
		return roomdriver.Change{Record: []byte(endless + "k"), Note: []byte(endless + "of now")}
	})
	noError(t, err)
	if got, _, err := d.table.Read(t.Context(), "note"); err != nil || string(got) != endless+"of now" {
		t.Errorf("the note is %q, %v", got, err)
	}
}
