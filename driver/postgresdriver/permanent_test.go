package postgresdriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// An error that needs an operator ends a wait at once, also the endless wait of a campaign.
// Too many connections, and a replica, are temporary.
func TestLock_WhatTimeDoesNotHealFailsAtOnce(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := postgrestest.Start(t)
	boss := admin(t, server.URL())
	exec(t, boss, SQL())
	exec(t, boss, `CREATE ROLE shut NOLOGIN; CREATE ROLE guest LOGIN; CREATE ROLE crowd LOGIN CONNECTION LIMIT 0;
		GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold TO crowd`)
	as := func(user string) string { return strings.Replace(server.URL(), "tester@", user+"@", 1) }
	for name, row := range map[string]struct {
		url       string
		permanent bool
	}{
		"no such user":              {as("nobody"), true},
		"a user that may not in":    {as("shut"), true},
		"a user without rights":     {as("guest"), true},
		"no such database":          {strings.Replace(server.URL(), "/postgres?", "/none?", 1), true},
		"an untrusted certificate":  {"postgres://somebody@" + untrusted(t) + "/app?sslmode=verify-full", true},
		"no TLS, which is required": {strings.Replace(server.URL(), "sslmode=disable", "sslmode=require", 1), true},
		"a wrong user, TLS wanted":  {strings.Replace(as("nobody"), "sslmode=disable", "sslmode=prefer", 1), true},
		"an unknown setting":        {server.URL() + "&colour=1", true},
		"a setting's wrong value":   {server.URL() + "&synchronous_commit=red", true},
		"a setting of the server":   {server.URL() + "&fsync=off", true},
		"a setting of superusers":   {as("guest") + "&log_statement=all", true},
		"no table":                  {server.URL() + "&table=none", true},
		"no schema":                 {server.URL() + "&schema=none", true},
		"a user's connections":      {as("crowd"), false},
	} {
		t.Run(name, func(t *testing.T) {
			outage := 3 * time.Second
			if row.permanent {
				outage = time.Minute // an error that ends the wait at once does not need it
			}
			client, err := leasehold.New(openURL(t, row.url), leasehold.WithMaxOutage(outage))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			start := time.Now()
			for range 3 {
				// On a starved machine a try may not be answered in its time, and the outcome is unknown.
				if _, err = client.Mutex("k").Lock(t.Context()); !errors.Is(err, leasehold.ErrUnknown) {
					break
				}
			}
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) != row.permanent {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if asked := strings.Contains(fmt.Sprint(err), "asked for"); asked == row.permanent {
				t.Errorf("it was asked again: %v; want %v: %v", asked, !row.permanent, err)
			}
		})
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

// PostgreSQL's own client, like pgx, asks no further host after a host has refused a password,
// a database or a right.
func TestAcquire_HostsThatRefuseHideNoOther(t *testing.T) {
	server := postgrestest.Shared(t)
	host := strings.TrimSuffix(strings.Split(strings.SplitN(server.URL(), "@", 2)[1], "/")[0], "/")
	refusing := func(code string) string {
		addr, _ := listening(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = conn.Write(refusal(code))
		})
		return addr
	}
	const nowhere = "127.0.0.1:1"
	for name, row := range map[string]struct {
		hosts     []string
		granted   bool
		permanent bool
	}{
		"one has another database":      {[]string{refusing("3D000"), host}, true, false},
		"two have other passwords":      {[]string{refusing("28P01"), refusing("28P01"), host}, true, false},
		"one is away and one refuses":   {[]string{nowhere, refusing("28P01"), host}, true, false},
		"all refuse":                    {[]string{refusing("28P01"), refusing("28000"), refusing("3D000")}, false, true},
		"the first is away":             {[]string{nowhere, refusing("3D000")}, false, false},
		"the last is away":              {[]string{refusing("28000"), nowhere}, false, false},
		"the first refuses, one starts": {[]string{refusing("28P01"), refusing("57P03")}, false, false},
	} {
		d := openURL(t, strings.Replace(server.URL(), host, strings.Join(row.hosts, ","), 1)+"&create=true")
		_, err := d.Acquire(t.Context(), mutex(name, "a"))
		if (err == nil) != row.granted || errors.Is(err, driver.ErrPermanent) != row.permanent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each attempt to connect asks all hosts, or, if the pool does not start it, no host.
func TestAcquire_HostsThatRefuseManyCallsAreAskedOnceByEach(t *testing.T) {
	refusing := func(code string) string {
		addr, _ := listening(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = conn.Write(refusal(code))
		})
		return addr
	}
	d := openURL(t, "postgres://nobody@"+refusing("28P01")+","+refusing("3D000")+"/none?sslmode=disable")
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

// A listener that asks only the first host would never connect, and its waiters would poll.
func TestWatch_HostsThatRefuseHideNoOther(t *testing.T) {
	server := postgrestest.Shared(t)
	host := strings.TrimSuffix(strings.Split(strings.SplitN(server.URL(), "@", 2)[1], "/")[0], "/")
	refusing, _ := listening(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		_, _ = conn.Write(refusal("3D000"))
	})
	d := warm(t, openURL(t, strings.Replace(server.URL(), host, refusing+","+host, 1)+"&create=true"))
	sub, err := d.Watch(func(driver.Hint) {})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	eventually(t, func() bool { return sub.Address() != "" })
}
