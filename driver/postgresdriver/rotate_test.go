package postgresdriver

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// A password is rotated while the store is in use.
func TestOpen_PassfileIsReadForEachConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(password string) {
		noError(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600))
	}
	write("one")
	d, err := Open("postgres://app@localhost:1/db?sslmode=disable&passfile=" + file)
	noError(t, err)
	defer d.Close()
	write("two")
	cfg := d.table.pool.conns.Config()
	if err := cfg.BeforeConnect(t.Context(), cfg.ConnConfig); err != nil || cfg.ConnConfig.Password != "two" {
		t.Errorf("password %q, %v, want two", cfg.ConnConfig.Password, err)
	}
}

// C8: the refusal of a password from a file is temporary if an earlier password of the file was
// accepted: the server may already have the next password.
func TestAcquire_ARefusalWhileAPassfileIsReplacedIsNotPermanent(t *testing.T) {
	live.Test(t)
	file := filepath.Join(t.TempDir(), "pgpass")
	noError(t, os.WriteFile(file, []byte("*:*:*:*:one\n"), 0o600))
	server := postgrestest.Shared(t).URL()
	host := hostOf(t, server)
	for name, row := range map[string]struct {
		password  string
		before    bool // a connection was made
		permanent bool
	}{
		"of a file":                     {"&passfile=" + file, true, false},
		"of a file, from the beginning": {"&passfile=" + file, false, true},
		"of the URL":                    {"&password=one", true, true},
	} {
		var refuses atomic.Bool
		addr, _ := listening(t, func(conn net.Conn) {
			if refuses.Load() {
				refuse(conn, "28P01")
			} else {
				forward(conn, host)
			}
		})
		d := openURL(t, strings.Replace(server, host, addr, 1)+"&create=true"+row.password)
		if row.before {
			warm(t, d)
		}
		refuses.Store(true)
		d.table.pool.conns.Reset()
		_, err := d.Acquire(t.Context(), mutex(name, "a"))
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) != row.permanent {
			t.Errorf("%s: %v; want ErrPermanent: %t", name, err, row.permanent)
		}
	}
}
