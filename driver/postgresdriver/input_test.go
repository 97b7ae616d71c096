package postgresdriver

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestOpen_SaysWhatIsWrongWithAURL(t *testing.T) {
	for rawURL, hint := range map[string]string{
		"mysql://u:secret@h/db":                                    "postgres://user:password@host",
		"postgres://u:secret@h:x/db":                               "percent-encode",
		"postgres://u:pass?secret@h/db":                            "percent-encode",
		"postgres://u:secret@h/db?timeout=x":                       "want a duration",
		"postgres://u:secret@h/?timeout=1ms":                       "not between 100ms and 1m",
		"postgres://u:secret@h/?create=y":                          "want true or false",
		"postgres://u:secret@h/?table=":                            "table name",
		"postgres://u:secret@h/?table=a&table=b":                   "given twice",
		"postgres://u:secret@h/?a=%zz":                             "name=value",
		"postgres://u:secret@h/?schema=" + strings.Repeat("s", 64): "schema name",
		"postgres://u:secret@h/?listen=postgres%3A%2F%2Fh%3Ax":     "listen",
		"postgres://u:p@secret@h/db":                               "percent-encode",
		"postgres://u:secret@a,u:secret@b/db":                      "percent-encode",
		"postgres://h/?listen=postgres%3A%2F%2Fu:p%40secret%40h":   "percent-encode",
	} {
		_, err := Open(rawURL)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want %q", rawURL, err, hint)
		}
	}
}

func TestOpen_TakesSeveralHostsAndAsksNobody(t *testing.T) {
	d, err := Open("postgres://u:p@192.0.2.1:5432,192.0.2.2:5433/db?target_session_attrs=read-write&table=t&sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestAcquire_SaysWhatToDo checks that each error contains a remedy, and means that the request
// had no effect.
func TestAcquire_SaysWhatToDo(t *testing.T) {
	server := postgrestest.Start(t)
	boss := admin(t, server.URL())
	exec(t, boss, `CREATE ROLE weak LOGIN`)
	exec(t, boss, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`) // as from version 15 on
	exec(t, boss, `CREATE ROLE full LOGIN CONNECTION LIMIT 0`)
	exec(t, boss, `CREATE DATABASE shut`)
	exec(t, boss, `REVOKE CONNECT ON DATABASE shut FROM PUBLIC`)
	exec(t, boss, SQL(WithTable("closed")))
	exec(t, boss, `CREATE TABLE other (key text)`)
	exec(t, boss, `CREATE TABLE older (key text PRIMARY KEY, record bytea)`)
	exec(t, boss, `CREATE VIEW seen AS SELECT ''::text AS key, ''::bytea AS record, 0::bigint AS ends`)
	u, _ := url.Parse(server.URL())
	as := func(user string) string { u := *u; u.User = url.User(user); return u.String() }
	exec(t, boss, `CHECKPOINT`)
	replica := server.Standby(t)
	lasting := map[string]bool{
		server.URL() + "&table=other": true, server.URL() + "&table=older": true, server.URL() + "&colour=1": true,
		as("weak") + "&table=closed": true, as("weak") + "&create=true": true, as("nobody") + "&table=closed": true,
		strings.Replace(server.URL(), "/postgres?", "/none?", 1): true,
		server.URL(): true, server.URL() + "&schema=none": true,
		server.URL() + "&synchronous_commit=red": true, server.URL() + "&fsync=off": true,
		as("weak") + "&create=true&schema=none": true, as("weak") + "&log_statement=all": true,
		strings.Replace(as("weak"), "/postgres?", "/shut?", 1): true,
	}
	for address, hint := range map[string]string{
		replica.URL() + "&table=closed": "read-only replica",
		server.URL():                    `create=true`,
		server.URL() + "&schema=none":   `create=true`,
		server.URL() + "&table=other":   "other columns",
		server.URL() + "&table=older":   "of another version",
		server.URL() + "&table=seen":    "name another",
		server.URL() + "&table=closed&options=-c%20default_transaction_read_only%3Don": "",
		server.URL() + "&colour=1":                               "colour",
		as("weak") + "&table=closed":                             `GRANT SELECT, INSERT, UPDATE, DELETE ON "closed"`,
		as("weak") + "&create=true":                              "needs CREATE on the schema",
		as("weak") + "&create=true&schema=none":                  "needs CREATE on the schema",
		as("weak") + "&log_statement=all":                        "see the parameters of the URL",
		server.URL() + "&synchronous_commit=red":                 "see the parameters of the URL",
		server.URL() + "&fsync=off":                              "see the parameters of the URL",
		strings.Replace(as("weak"), "/postgres?", "/shut?", 1):   "CONNECT",
		as("full") + "&table=closed":                             "too many connections",
		as("nobody") + "&table=closed":                           "does not exist",
		strings.Replace(server.URL(), "/postgres?", "/none?", 1): "no such database",
		"postgres://127.0.0.1:1/db":                              "connect",
	} {
		d := openURL(t, address)
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		if lasts := lasting[address]; errors.Is(err, driver.ErrPermanent) != lasts {
			t.Errorf("%s: %v; ErrPermanent: %t", address, err, !lasts)
		}
		if err != nil && strings.Count(err.Error(), " (there is no") > 1 {
			t.Errorf("%s: %v has the advice twice", address, err)
		}
		if hint == "" {
			if err != nil {
				t.Errorf("%s: %v", address, err)
			}
		} else if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v; want %q", address, err, hint)
		}
	}
}

// TestAcquire_ARecordOfANewerVersionIsLeftAlone plays a program that is older than the other
// programs on the store.
func TestAcquire_ARecordOfANewerVersionIsLeftAlone(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	boss := admin(t, server.URL())
	exec(t, boss, `UPDATE leasehold SET record = '\x02' || substr(record, 2)`)
	_, err := d.Acquire(t.Context(), ticket("warm-up", "b"))
	if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(err.Error(), "let all programs use one version") {
		t.Errorf("%v", err)
	}
	var version int
	if err := boss.QueryRow(t.Context(), `SELECT get_byte(record, 0) FROM leasehold`).Scan(&version); err != nil || version != 2 {
		t.Errorf("version %d, %v", version, err)
	}
}

// TestOpen_APoolOfOneConnectionIsEnough calls all verbs with a URL that allows one connection:
// renewals and the listener have further connections.
func TestOpen_APoolOfOneConnectionIsEnough(t *testing.T) {
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&pool_max_conns=1"))
	sub, err := d.Watch(func(driver.Hint) {})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	eventually(t, func() bool { return sub.Address() != "" })
	err = between(t.Context(), d, "warm-up", func() {
		d.Renew(t.Context(), []driver.Ref{{Key: "other", ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, err error) {
			if err != nil || reply.State != driver.Gone {
				t.Errorf("%+v, %v", reply, err)
			}
		})
		if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAcquire_NeedsNoMoreThanTheLeastRights(t *testing.T) {
	server := postgrestest.Start(t)
	boss := admin(t, server.URL())
	for _, sql := range []string{
		SQL(WithSchema("locks")), `CREATE ROLE app LOGIN`, `GRANT USAGE ON SCHEMA locks TO app`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON locks.leasehold TO app`,
	} {
		exec(t, boss, sql)
	}
	u, _ := url.Parse(server.URL())
	u.User = url.User("app")
	// The right to create is not needed if the table exists.
	d := openURL(t, u.String()+"&schema=locks&create=true")
	other := openURL(t, u.String()+"&schema=locks")
	woken := make(chan driver.Hint, 10)
	sub, err := other.Watch(func(h driver.Hint) { woken <- h })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	eventually(t, func() bool { return sub.Address() != "" })
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	req := mutex("k", "b")
	req.TicketTTL, req.HintAddress = time.Minute, sub.Address()
	if reply, err := other.Acquire(t.Context(), req); err != nil || reply.State != driver.Queued {
		t.Fatalf("%+v, %v", reply, err)
	}
	if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case h := <-woken:
			if h.Kind == driver.HintGranted {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no waiter was woken")
		}
	}
}

func TestNew_UsesNoConnectionOfThePool(t *testing.T) {
	server := postgrestest.Shared(t)
	cfg, err := pgxpool.ParseConfig(server.URL() + "&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	mine, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Release()
	d, err := New(pool, WithCreate())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if reply, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil || reply.State != driver.Granted {
		t.Errorf("%+v, %v", reply, err)
	}
	if _, err := New(pool, WithTimeout(time.Hour)); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

// The pooler gives each transaction another connection: locks work as usual, and the driver
// detects that notifications do not arrive.
func TestBouncer_LocksAreKeptAndNobodyIsToldToWaitForHints(t *testing.T) {
	server := postgrestest.Shared(t)
	through := server.Bouncer(t) + asText + "&create=true"
	d := warm(t, openURL(t, through))
	hears := func(d *Driver) driver.Subscription {
		sub, err := d.Watch(func(driver.Hint) {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Close() })
		return sub
	}
	deaf := hears(d)
	direct := hears(openURL(t, through+"&listen="+url.QueryEscape(server.URL())))
	eventually(t, func() bool { return direct.Address() != "" })
	if deaf.Address() != "" {
		t.Error("a subscription through the pooler has an address")
	}
	for _, name := range []string{"a", "b"} {
		if reply, err := d.Acquire(t.Context(), mutex("k", name)); err != nil || (reply.State == driver.Granted) != (name == "a") {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
}

func TestBouncer_PreparedStatementsThatItMixesUpAreExplained(t *testing.T) {
	server := postgrestest.Shared(t)
	d := openURL(t, server.Bouncer(t)+"&create=true")
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = d.Acquire(t.Context(), mutex("k", "a"))
		_ = d.table.pool.conns.Config()
		d.table.pool.conns.Reset() // another client, with the server's old connections
	}
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("%v", err)
	}
}
