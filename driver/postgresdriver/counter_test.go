//go:build linux

package postgresdriver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

const countLocks = `SELECT count(*) FROM leasehold WHERE key NOT LIKE E'\x01%' AND key <> 'warm-up'`

// cycle takes and gives up a lock, and returns its token.
func cycle(t *testing.T, d *Driver, key string) int64 {
	t.Helper()
	token := acquire(t, d, mutex(key, "a"), driver.Granted).Token
	release(t, d, key, "a")
	return token
}

func TestCounter_ReleasedLocksLeaveNoRowAndTokensRise(t *testing.T) {
	server, clock := postgrestest.StartWithClock(t)
	d, other := warm(t, openURL(t, server.URL()+"&create=true")), openURL(t, server.URL())
	boss := admin(t, server.URL())
	last := int64(0)
	for _, step := range []time.Duration{0, 2 * time.Hour, -5 * time.Hour, 20 * time.Minute} {
		clock.Step(step)
		for i, d := range []*Driver{d, other, d, d} {
			token := cycle(t, d, "k")
			if token <= last {
				t.Errorf("%v, call %d: token %d follows %d", step, i, token, last)
			}
			last = token
		}
		for i := range 20 {
			cycle(t, d, fmt.Sprint(step, i))
		}
		if n := value[int](t, boss, countLocks); n != 0 {
			t.Errorf("%v: %d rows are left", step, n)
		}
	}
}

// Parts of the counter come back from the past. Sessions that begin after that raise it to the clock.
func TestCounter_TokensRiseAfterARestore(t *testing.T) {
	d, server := newStore(t, "")
	boss := admin(t, server.URL())
	for name, restore := range map[string]string{
		"row":          `UPDATE leasehold SET ends = 5 WHERE key = E'\x01tokens'`,
		"no row":       `DELETE FROM leasehold WHERE key = E'\x01tokens'`,
		"sequence":     `SELECT setval('leasehold_tokens', 1)`,
		"both":         `UPDATE leasehold SET ends = 5 WHERE key = E'\x01tokens'; SELECT setval('leasehold_tokens', 1)`,
		"all the data": `TRUNCATE leasehold RESTART IDENTITY`,
		"no table":     `DROP TABLE leasehold`,
		"new table":    `DROP TABLE leasehold; ` + SQL(),
		"dump":         `TRUNCATE leasehold; INSERT INTO leasehold SELECT * FROM dump; SELECT setval('leasehold_tokens', 1)`,
	} {
		exec(t, boss, `DROP TABLE IF EXISTS dump; CREATE TABLE dump AS SELECT * FROM leasehold`)
		last := int64(0)
		for range 10 {
			last = cycle(t, d, "k")
		}
		exec(t, boss, restore)
		if name == "row" || name == "sequence" || name == "both" { // no running server loses that alone
			exec(t, boss, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		}
		eventually(t, func() bool { // the driver finds its connections broken
			reply, err := d.Acquire(t.Context(), mutex("k", "b"))
			if err == nil && reply.Token <= last {
				t.Errorf("%s: token %d follows %d", name, reply.Token, last)
			}
			return err == nil
		})
		release(t, d, "k", "b")
	}
}

// No other call takes a token for a lock between the look at its missing row and the insertion: a call
// of the other kind waits.
func TestCounter_CallsTakeTurnsAtALockWithoutARow(t *testing.T) {
	d, server := newStore(t, "")
	boss, other := admin(t, server.URL()), warm(t, openURL(t, server.URL()))
	var all sync.WaitGroup
	var first, second int64
	_, err := d.table.Transact(t.Context(), []roomdriver.Item{{Key: "k"}}, func(_ int, found roomdriver.Found) roomdriver.Change {
		first = found.Token
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			reply, err := other.Acquire(t.Context(), mutex("k", "a"))
			if err != nil {
				t.Error(err)
			}
			second = reply.Token
		})
		eventually(t, func() bool {
			select {
			case <-done:
				t.Error("it did not wait")
				return true
			default:
				return value[int](t, boss, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 1
			}
		})
		return roomdriver.Change{}
	})
	noError(t, err)
	if all.Wait(); first == 0 || second <= first {
		t.Errorf("token %d follows %d", second, first)
	}
}

// A pooler that gives each transaction a fresh session has no session that has raised the counter.
func TestCounter_ServesAPoolerThatResetsItsSessions(t *testing.T) {
	server := postgrestest.Shared(t)
	warm(t, openURL(t, server.URL()+"&create=true"))
	d := openURL(t, server.Bouncer(t, "server_reset_query_always = 1")+asText)
	cycle(t, d, "k")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	acquire(t, d, ticket("k", "b"), driver.Queued)
	renewed(t.Context(), t, d, "k")
	release(t, d, "k", "a")
	acquire(t, d, mutex("k", "b"), driver.Granted)
}

// The first token of a session needs no transaction. A try at a held lock takes no token.
func TestExchange_InAFreshSession(t *testing.T) {
	d, server := newStore(t, "")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	held, now, err := d.table.Read(t.Context(), "k")
	noError(t, err)
	try := func(key string, before []byte) (bool, roomdriver.Found) {
		done, found, err := openURL(t, server.URL()).table.Exchange(t.Context(), roomdriver.Exchange{
			Key: key, Before: before, From: now.Add(-time.Hour), Until: now.Add(time.Hour),
			Change: roomdriver.Change{Record: held, Enters: true, Mints: true},
		})
		noError(t, err)
		return done, found
	}
	if done, found := try("free", nil); !done || room.Token(found.Record) <= room.Token(held) || found.Now.Before(now) {
		t.Errorf("a free lock: %t, %+v", done, found)
	}
	raised := value[int64](t, admin(t, server.URL()), `SELECT ends FROM leasehold WHERE key = E'\x01tokens'`)
	if done, found := try("k", nil); done || !bytes.Equal(found.Record, held) || found.Now.Before(now) {
		t.Errorf("a held lock: %t, %+v", done, found)
	}
	if done, found := try("k", []byte("another record")); done || !bytes.Equal(found.Record, held) || found.Now.Before(now) {
		t.Errorf("a record that was replaced: %t, %+v", done, found)
	}
	if again := value[int64](t, admin(t, server.URL()), `SELECT ends FROM leasehold WHERE key = E'\x01tokens'`); again != raised {
		t.Errorf("the counter was raised from %d to %d for no token", raised, again)
	}
}

func TestAcquire_ATryAtAHeldLockWaitsForNoTransaction(t *testing.T) {
	d, server := newStore(t, "")
	other, third := warm(t, openURL(t, server.URL())), openURL(t, server.URL())
	place := func(id string) driver.Request {
		req := reader("places", id)
		req.Limit = 2
		return req
	}
	acquire(t, d, mutex("k", "a"), driver.Granted)
	acquire(t, other, place("a"), driver.Granted) // it remembers a free place
	acquire(t, d, place("b"), driver.Granted)
	noError(t, between(t.Context(), third, "k", func() { acquire(t, other, mutex("k", "b"), driver.Busy) }))
	noError(t, between(t.Context(), third, "places", func() { acquire(t, other, place("c"), driver.Busy) }))
}

// The remedy of the doctor, after the clock was wrong.
func TestCounter_RunningProcessesFollowACorrectedOne(t *testing.T) {
	server, clock := postgrestest.StartWithClock(t)
	d, other := warm(t, openURL(t, server.URL()+"&create=true")), openURL(t, server.URL())
	clock.Step(48 * time.Hour)
	cycle(t, d, "old")
	clock.Step(-48 * time.Hour)
	exec(t, admin(t, server.URL()), `DELETE FROM leasehold WHERE key = E'\x01tokens'`)
	cycle(t, other, "old")
	last := int64(0)
	for i, d := range []*Driver{d, other, d, other} {
		token := cycle(t, d, "new")
		if token <= last {
			t.Errorf("call %d: token %d follows %d", i, token, last)
		}
		last = token
	}
}

func TestCounter_IsPushedByARaiseThatIsNear(t *testing.T) {
	d, server := newStore(t, "")
	boss := admin(t, server.URL())
	for ahead, rows := range map[time.Duration]int{500 * time.Millisecond: 0, time.Hour: 1} {
		req, want := mutex(fmt.Sprint("ahead ", ahead), "a"), time.Now().Add(ahead).UnixMicro()
		acquire(t, d, req, driver.Granted)
		d.Renew(t.Context(), []driver.Ref{{Key: req.Key, ID: "a", TTL: time.Minute, Token: want}}, func(_ int, reply driver.Reply, err error) {
			if err != nil || reply.Token != want {
				t.Errorf("%v: %+v, %v; want the token %d", ahead, reply, err, want)
			}
		})
		release(t, d, req.Key, "a")
		if n := value[int](t, boss, countLocks+` AND key = '`+req.Key+`'`); n != rows {
			t.Errorf("%v: %d rows are left, want %d", ahead, n, rows)
		}
		if got := cycle(t, d, req.Key); got <= want {
			t.Errorf("%v: token %d follows %d", ahead, got, want)
		}
	}
}

func TestCounter_DoctorNamesWhatIsWrong(t *testing.T) {
	d, server := newStore(t, "")
	boss := admin(t, server.URL())
	acquire(t, d, mutex("held", "a"), driver.Granted)
	acquire(t, d, ticket("held", "w"), driver.Queued)
	finds(t, d, "counter", driver.Good, "")
	exec(t, boss, `UPDATE leasehold SET ends = ends * 100 WHERE key = E'\x01tokens'`)
	_, err := d.Acquire(t.Context(), mutex("k", "a"))
	if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(err.Error(), "leasehold doctor") {
		t.Errorf("%v", err)
	}
	renewed(t.Context(), t, d, "held") // it needs no token
	if reply, err := d.Release(t.Context(), driver.Ref{Key: "held", ID: "w"}); err != nil || reply.State != driver.Left {
		t.Errorf("%+v, %v", reply, err)
	}
	finds(t, d, "counter", driver.Unsafe, "DELETE FROM")
	exec(t, boss, `DELETE FROM leasehold WHERE key = E'\x01tokens'`)
	cycle(t, d, "k")
	exec(t, boss, `DROP SEQUENCE leasehold_tokens`)
	finds(t, d, "sequence", driver.Unsafe, "CREATE SEQUENCE")
}
