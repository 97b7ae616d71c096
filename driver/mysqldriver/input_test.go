package mysqldriver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

func TestOpen_AWrongURLIsRefusedAtOnceWithoutItsPassword(t *testing.T) {
	for url, says := range map[string]string{
		"mysql://u:hunter2@h/":                                    "no database",
		"mysql://u:hunter2@/db":                                   "no host",
		"postgres://u:hunter2@h/db":                               "want a URL such as mysql://",
		"mysql:u:hunter2@h/db":                                    "",
		"mysql://u:hun/ter2@h/db":                                 "percent-encode",
		"mysql://u:hunter2@h:port/db":                             "",
		"mysql://u:hunter2@h/db?tabel=x":                          "tabel",
		"mysql://u:hunter2@h/db?table=":                           "between 1 and 56",
		"mysql://u:hunter2@h/db?table=" + strings.Repeat("x", 57): "between 1 and 56",
		"mysql://u:hunter2@h/db?table=a%3Bb":                      "semicolons",
		"mysql://u:hunter2@h/db?table=%C3%A4":                     "ASCII",
		"mysql://u:hunter2@h/db?timeout=1ms":                      "between 100ms and 1m",
		"mysql://u:hunter2@h/db?poll=1h":                          "between 1ms and 10s",
		"mysql://u:hunter2@h/db?create=maybe":                     "create",
		"mysql://u:hunter2@h/db?tls=sometimes":                    "sometimes",
		"mysql://u:hunter2@h/db?ca=/none":                         "tls=true",
		"mysql://u:hunter2@h/db?tls=true&ca=/none":                "/none",
	} {
		d, err := Open(url)
		if d != nil || !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: %v; want %q", url, err, says)
		}
	}
	if _, err := New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%v", err)
	}
	for _, url := range []string{
		"mysql://h/db", "mariadb://u:p%40@h:1/db?tls=skip-verify", "mysql://u@/db?socket=/run/s", "mysql://[::1]/db?tls=true&server_name=x",
	} {
		d, err := Open(url)
		noError(t, err)
		noError(t, d.Close())
	}
}

// Refusals that time does not heal come at once, in one sentence with the remedy.
func TestAcquire_WhatIsWrongIsExplainedAtOnce(t *testing.T) {
	server := mysqltest.Start(t)
	server.Exec(t, SQL()+SQL(WithTable("lacking"))+"CREATE TABLE foreign_table (id INT);"+
		"CREATE USER app@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON lacking TO app@'%';"+
		"CREATE VIEW sight AS SELECT * FROM leasehold")
	replica := mysqltest.Start(t, "--read-only")
	replica.Exec(t, SQL())
	// InnoDB refuses to write with these settings.
	unfit := mysqltest.Start(t, "--log-bin", "--binlog-format=STATEMENT", "--transaction-isolation=READ-COMMITTED")
	url := server.URL()
	app := strings.Replace(url, "tester@", "app:secret@", 1)
	for _, row := range []struct {
		url, says string
		permanent bool
	}{
		{url + "table=none", "open the store with create=true", true},
		{url + "table=foreign_table", "other columns", true},
		{strings.Replace(url, "/locks", "/none", 1), "no such database", true},
		{strings.Replace(url, "tester@", "app:wrong@", 1), "password", true},
		{strings.Replace(url, "tester@", "nobody:x@", 1), "password", true},
		{app + "table=lacking", "GRANT SELECT, INSERT, UPDATE, DELETE", true},
		{app + "table=another&create=true", "CREATE", true},
		{url + "tls=true", "TLS", true},
		{unfit.URL() + "create=true", "binlog_format", true},
		{replica.URL(), "connect to the primary", false},
		{strings.Replace(url, server.Addr(), "127.0.0.1:1", 1), "refused", false},
	} {
		d := openURL(t, row.url)
		_, err := d.Acquire(t.Context(), mutex("k", "a"))
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) != row.permanent ||
			!strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v; want %q", row.url, err, row.says)
		}
		if errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", row.url, err)
		}
	}
}

// The statements of the application's pool would not be committed.
func TestNew_APoolWithoutAutocommitIsRefused(t *testing.T) {
	server := mysqltest.Shared(t)
	server.Exec(t, SQL())
	d, err := New(server.DB(t, "autocommit=false"))
	noError(t, err)
	defer d.Close()
	_, err = d.Acquire(t.Context(), mutex("k", "a"))
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "autocommit") {
		t.Errorf("%v", err)
	}
}

// The application may have changed one session of its pool.
func TestSwap_ASessionWithoutAutocommitWritesNothing(t *testing.T) {
	server := mysqltest.Shared(t)
	server.Exec(t, SQL())
	db := server.DB(t)
	d, err := New(db)
	noError(t, err)
	defer d.Close()
	session, err := db.Conn(t.Context())
	noError(t, err)
	_, err = session.ExecContext(t.Context(), "SET autocommit = 0")
	noError(t, err)
	_, version, _, err := d.table.Load(t.Context(), "k") // by another session
	noError(t, err)
	other, err := db.Conn(t.Context())
	noError(t, err)
	defer other.Close()
	noError(t, session.Close())
	ok, err := d.table.Swap(t.Context(), "k", version, append([]byte{1, 0x7f}, make([]byte, 7)...))
	if ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// A server that becomes a replica is left: its name may lead to another one now.
func TestAcquire_AServerThatBecomesReadOnlyIsLeft(t *testing.T) {
	server := mysqltest.Start(t)
	d := warm(t, openURL(t, server.URL()+"create=true"))
	acquire(t, d, mutex("k", "a"), driver.Granted)
	server.Exec(t, "SET GLOBAL read_only = ON")
	for what, ask := range map[string]func() error{
		"renewal": func() error { _, err := renew(t.Context(), d, "k"); return err },
		"try":     func() error { _, err := d.Acquire(t.Context(), mutex("k", "b")); return err },
		"look":    func() error { _, err := d.Inspect(t.Context(), "k"); return err },
	} {
		if err := ask(); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "connect to the primary") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := d.table.db.Stats().Idle; n > 0 {
		t.Errorf("%d connections to the replica are kept", n)
	}
	server.Exec(t, "SET GLOBAL read_only = OFF")
	release(t, d, "k", "a")
}

func TestNew_LeavesThePoolOpen(t *testing.T) {
	server := mysqltest.Shared(t)
	db := server.DB(t, "sql_mode=%27ORACLE%27")
	db.SetMaxOpenConns(1) // is enough, as are the reserved words of this mode
	d, err := New(db, WithCreate(), WithTable("odd `name'"))
	noError(t, err)
	acquire(t, d, mutex("k", "a"), driver.Granted)
	sub, err := d.Watch(func(driver.Hint) {})
	noError(t, err)
	release(t, d, "k", "a")
	noError(t, sub.Close())
	noError(t, d.Close())
	noError(t, db.PingContext(t.Context()))
	if d.SQL() != SQL(WithTable("odd `name'")) {
		t.Errorf("%s", d.SQL())
	}
	server.Exec(t, d.SQL()) // again
	if text := SQL(WithTable("")); !strings.HasPrefix(text, "-- table name") {
		t.Errorf("%q", text)
	}
}

// Processes that start together create the table once.
func TestAcquire_ManyCreateTheTable(t *testing.T) {
	server := mysqltest.Shared(t)
	errs := make(chan error)
	for range 8 {
		d := openURL(t, server.URL()+"create=true")
		go func() {
			_, err := d.Acquire(t.Context(), mutex("k", "a"))
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The record of a long queue is large.
func TestUpdate_ALargeRecordFits(t *testing.T) {
	d, server := newStore(t, "")
	large := append([]byte{1, 0x7f}, make([]byte, 4<<20)...)
	for range 2 {
		large[len(large)-1]++
		noError(t, d.table.Update(t.Context(), "large", func([]byte, time.Time) ([]byte, error) { return large, nil }))
	}
	if got, _, err := d.table.Read(t.Context(), "large"); err != nil || string(got) != string(large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	mine, err := New(server.DB(t, "maxAllowedPacket=8192"))
	noError(t, err)
	defer mine.Close()
	err = mine.table.Update(t.Context(), "new", func([]byte, time.Time) ([]byte, error) { return large, nil })
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// Without strict mode the server would cut the record off.
func TestUpdate_ARecordIsNeverTruncated(t *testing.T) {
	server := mysqltest.Start(t, "--max-allowed-packet=64M", "--innodb-log-file-size=256M")
	server.Exec(t, SQL())
	d, err := New(server.DB(t, "sql_mode=%27%27", "maxAllowedPacket=67108864"), WithTimeout(20*time.Second))
	noError(t, err)
	defer d.Close()
	acquire(t, d, mutex("k", "a"), driver.Granted)
	huge := append([]byte{1, 0x7f}, make([]byte, 1<<24)...)
	err = d.table.Update(t.Context(), "k", func([]byte, time.Time) ([]byte, error) { return huge, nil })
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if !holds(t, d, "k", "a") {
		t.Error("the lease is gone")
	}
}

// Each message arrives once, although transactions end in another order than their ids.
func TestListen_EachMessageArrivesOnce(t *testing.T) {
	server := mysqltest.Shared(t)
	server.Exec(t, SQL())
	d := openURL(t, server.URL()+"poll=1ms") // takes no lock, so no sweep meets the open transaction
	bodies := make(chan string, 100)
	sub, err := d.table.Listen(func(body string) { bodies <- body })
	noError(t, err)
	defer sub.Close()
	tx, err := server.DB(t).BeginTx(t.Context(), nil)
	noError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO leasehold_message (address, message, sent) VALUES (?, 'late', 9e15)", sub.Address())
	noError(t, err)
	server.Exec(t, "INSERT INTO leasehold_message (address, message, sent) VALUES ('everybody', 'old', 0)")
	send(t, d, sub.Address(), "own")
	send(t, d, "everybody", "all")
	send(t, d, "another", "other")
	want := map[string]int{"own": 1, "all": 1, "late": 1}
	got := map[string]int{<-bodies: 1}
	got[<-bodies]++
	noError(t, tx.Commit())
	got[<-bodies]++
	send(t, d, sub.Address(), "last")
	for body := range bodies {
		if got[body]++; body == "last" {
			break
		}
	}
	want["last"] = 1
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for body, n := range want {
		if got[body] != n {
			t.Errorf("%s came %d times, want %d", body, got[body], n)
		}
	}
	eventually(t, func() bool { // only messages to others stay
		var n int
		err := server.DB(t).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM leasehold_message").Scan(&n)
		return err == nil && n == 3
	})
}

func send(t *testing.T, d *Driver, address, body string) {
	t.Helper()
	noError(t, d.table.Notify(t.Context(), []roomdriver.Message{{Address: address, Body: body}}))
}
