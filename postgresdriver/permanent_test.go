package postgresdriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

// What somebody has to mend first ends a wait at once, and that of a campaign, which has no
// other end. Too many connections, and a replica, are healed by time.
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
		"no such user":             {as("nobody"), true},
		"a user that may not in":   {as("shut"), true},
		"a user without rights":    {as("guest"), true},
		"no such database":         {strings.Replace(server.URL(), "/postgres?", "/none?", 1), true},
		"an untrusted certificate": {"postgres://somebody@" + untrusted(t) + "/app?sslmode=verify-full", true},
		"a user's connections":     {as("crowd"), false},
		"no table":                 {server.URL() + "&table=none", false},
	} {
		t.Run(name, func(t *testing.T) {
			outage := 3 * time.Second
			if row.permanent {
				outage = time.Minute // what fails at once does not need it
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

// untrusted is the address of a server with a certificate of nobody.
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
