package postgresdriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
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
	noError(t, err)
	noError(t, d.Close())
}

// TestAcquire_SaysWhatToDo checks that each error contains a remedy, and means that the request
// had no effect. An error that needs an operator is permanent, so that a wait ends at once. Too
// many connections, and a replica, are temporary.
func TestAcquire_SaysWhatToDo(t *testing.T) {
	server := postgrestest.Start(t)
	boss := admin(t, server.URL())
	for _, sql := range []string{
		`CREATE ROLE weak LOGIN; CREATE ROLE shut NOLOGIN; CREATE ROLE full LOGIN CONNECTION LIMIT 0`,
		`REVOKE CREATE ON SCHEMA public FROM PUBLIC`, // as from version 15 on
		`CREATE DATABASE shut`, `REVOKE CONNECT ON DATABASE shut FROM PUBLIC`, SQL(WithTable("closed")),
		`CREATE TABLE other (key text)`, `CREATE TABLE older (key text PRIMARY KEY, record bytea)`,
		`CREATE VIEW seen AS SELECT ''::text AS key, ''::bytea AS record, 0::bigint AS ends; CREATE SEQUENCE seen_tokens`, `CHECKPOINT`,
	} {
		exec(t, boss, sql)
	}
	url := server.URL()
	weak, none := as("weak", url), as("nobody", url)+"&table=closed"
	in := func(database, url string) string { return strings.Replace(url, "/postgres?", "/"+database+"?", 1) }
	tls := func(mode, url string) string { return strings.Replace(url, "sslmode=disable", "sslmode="+mode, 1) }
	for _, row := range []struct {
		url, hint string // there is no error if hint is ""
		permanent bool
	}{
		{server.Standby(t).URL() + "&table=closed", "read-only replica", false},
		{url, "create=true", true},
		{url + "&schema=none", "create=true", true},
		{url + "&table=other", "other columns", true},
		{url + "&table=older", "of another version", true},
		{url + "&table=seen", "name another", false},
		{url + "&table=closed&options=-c%20default_transaction_read_only%3Don", "", false},
		{url + "&colour=1", "colour", true},
		{weak + "&table=closed", `GRANT SELECT, INSERT, UPDATE, DELETE ON "closed"`, true},
		{weak + "&create=true", "needs CREATE on the schema", true},
		{weak + "&create=true&schema=none", "needs CREATE on the schema", true},
		{weak + "&log_statement=all", "see the parameters of the URL", true},
		{url + "&synchronous_commit=red", "see the parameters of the URL", true},
		{url + "&fsync=off", "see the parameters of the URL", true},
		{in("shut", weak), "CONNECT", true},
		{as("full", url) + "&table=closed", "too many connections", false},
		{none, "does not exist", true},
		{as("shut", url), "not permitted to log in", true},
		{tls("prefer", none), "does not exist", true},
		{tls("require", url), "TLS", true},
		{"postgres://somebody@" + untrusted(t) + "/app?sslmode=verify-full", "certificate", true},
		{in("none", url), "no such database", true},
		{"postgres://127.0.0.1:1/db", "connect", false},
	} {
		_, err := openURL(t, row.url).Acquire(t.Context(), mutex("k", "a"))
		refused := err != nil
		if refused != (row.hint != "") || errors.Is(err, driver.ErrUnavailable) != refused || errors.Is(err, driver.ErrPermanent) != row.permanent {
			t.Errorf("%s: %v; want ErrUnavailable, and ErrPermanent: %t", row.url, err, row.permanent)
		}
		if text := fmt.Sprint(err); !strings.Contains(text, row.hint) || strings.Count(text, " (there is no") > 1 {
			t.Errorf("%s: %v; want %q, once", row.url, err, row.hint)
		}
	}
}

// untrusted returns the address of a server with a certificate of an unknown authority.
func untrusted(t *testing.T) string {
	t.Helper()
	known := httptest.NewUnstartedServer(nil)
	known.StartTLS()
	t.Cleanup(known.Close)
	addr, _ := listening(t, func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil { // asks for TLS
			return
		}
		_, _ = conn.Write([]byte("S"))
		_ = tls.Server(conn, known.TLS).Handshake()
	})
	return addr
}

// TestOpen_APoolOfOneConnectionIsEnough calls all verbs with a URL that allows one connection:
// renewals and the listener have further connections.
func TestOpen_APoolOfOneConnectionIsEnough(t *testing.T) {
	d, _ := newStore(t, "&pool_max_conns=1")
	watch(t, d, unheard)
	err := between(t.Context(), d, "warm-up", func() {
		if got, err := renew(t.Context(), d, "other"); err != nil || got != driver.Gone {
			t.Errorf("state %v, %v", got, err)
		}
		acquire(t, d, mutex("k", "a"), driver.Granted)
	})
	noError(t, err)
}

func TestNew_UsesNoConnectionOfThePool(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(postgrestest.Shared(t).URL() + "&pool_max_conns=1")
	noError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	noError(t, err)
	defer pool.Close()
	mine, err := pool.Acquire(t.Context())
	noError(t, err)
	defer mine.Release()
	d, err := New(pool, WithCreate())
	noError(t, err)
	defer d.Close()
	acquire(t, d, mutex("k", "a"), driver.Granted)
	if _, err := New(pool, WithTimeout(time.Hour)); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

// The pooler gives each transaction another connection, so the driver detects that notifications
// do not arrive.
func TestBouncer_NobodyIsToldToWaitForHints(t *testing.T) {
	server := postgrestest.Shared(t)
	through := server.Bouncer(t) + asText + "&create=true"
	deaf := watchSoon(t, warm(t, openURL(t, through)), unheard)
	watch(t, openURL(t, through+"&listen="+url.QueryEscape(server.URL())), unheard)
	if deaf.Address() != "" {
		t.Error("a subscription through the pooler has an address")
	}
}

func TestBouncer_PreparedStatementsThatItMixesUpAreExplained(t *testing.T) {
	server := postgrestest.Shared(t)
	d := openURL(t, server.Bouncer(t)+"&create=true")
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = d.Acquire(t.Context(), mutex("k", "a"))
		d.table.pool.conns.Reset() // another client, with the server's old connections
	}
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("%v", err)
	}
}

// Where statements are sent as text, so are the answers.
func TestAcquire_DateStyleChangesNothing(t *testing.T) {
	server := postgrestest.Shared(t)
	for _, style := range []string{"German", "SQL,DMY", "Postgres,MDY"} {
		t.Run(style, func(t *testing.T) {
			d := openURL(t, server.URL()+"&create=true"+asText+"&datestyle="+url.QueryEscape(style))
			acquire(t, d, mutex(style, "a"), driver.Granted)
			acquire(t, d, mutex(style, "b"), driver.Busy)
			if !holds(t, d, style, "a") {
				t.Error("not there")
			}
			if _, _, err := d.List(t.Context(), "", ""); err != nil {
				t.Error(err)
			}
			finds(t, d, "clock", driver.Good, "")
		})
	}
}

func TestSQL_MakesTheTableThatIsUsed(t *testing.T) {
	server := postgrestest.Shared(t)
	boss := admin(t, server.URL())
	d := openURL(t, server.URL()+`&schema=odd+%22sch\%27ema%22&table=Locks%3B+DROP`)
	for range 2 {
		exec(t, boss, d.SQL())
	}
	if !holds(t, warm(t, d), "warm-up", "w") || d.SQL() != SQL(WithSchema(`odd "sch\'ema"`), WithTable("Locks; DROP")) {
		t.Errorf("not there, or not made by %s", d.SQL())
	}
	if text := SQL(WithTable("")); !strings.HasPrefix(text, "-- table name") {
		t.Errorf("%q", text)
	}
}

// PostgreSQL's own client, like pgx, asks no further host after a host has refused a password,
// a database or a right.
func TestAcquire_HostsThatRefuseHideNoOther(t *testing.T) {
	server := postgrestest.Shared(t)
	host := hostOf(t, server.URL())
	refuser := func(code string) string {
		addr, _ := refusing(t, code)
		return addr
	}
	const nowhere = "127.0.0.1:1"
	for name, row := range map[string]struct {
		hosts     []string
		granted   bool
		permanent bool
	}{
		"one has another database":      {[]string{refuser("3D000"), host}, true, false},
		"two have other passwords":      {[]string{refuser("28P01"), refuser("28P01"), host}, true, false},
		"one is away and one refuses":   {[]string{nowhere, refuser("28P01"), host}, true, false},
		"all refuse":                    {[]string{refuser("28P01"), refuser("28000"), refuser("3D000")}, false, true},
		"the first is away":             {[]string{nowhere, refuser("3D000")}, false, false},
		"the last is away":              {[]string{refuser("28000"), nowhere}, false, false},
		"the first refuses, one starts": {[]string{refuser("28P01"), refuser("57P03")}, false, false},
	} {
		d := openURL(t, strings.Replace(server.URL(), host, strings.Join(row.hosts, ","), 1)+"&create=true")
		_, err := d.Acquire(t.Context(), mutex(name, "a"))
		if (err == nil) != row.granted || errors.Is(err, driver.ErrPermanent) != row.permanent || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "one has another database" { // a listener that asks only the first host would never connect
			watch(t, d, unheard)
		}
	}
}

// Each attempt to connect asks all hosts, or, if the pool does not start it, no host.
func TestAcquire_HostsThatRefuseManyCallsAreAskedOnceByEach(t *testing.T) {
	first, _ := refusing(t, "28P01")
	second, _ := refusing(t, "3D000")
	d := openURL(t, "postgres://nobody@"+first+","+second+"/none?sslmode=disable")
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 3 {
				_, err := d.Acquire(t.Context(), mutex(fmt.Sprint("k", i), "a"))
				if text := fmt.Sprint(err); !errors.Is(err, driver.ErrPermanent) || strings.Count(text, "SQLSTATE") > 4 {
					t.Errorf("%d bytes: %.500s", len(text), text)
				}
			}
		})
	}
	all.Wait()
}
