package mysqldriver

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
)

// warm waits until the table exists and the driver has a connection, and returns the driver.
func warm(t *testing.T, d *Driver) *Driver {
	t.Helper()
	eventually(t, func() bool { // its timeout may be short, and the machine busy
		_, err := d.Acquire(t.Context(), mutex("warm-up", "w"))
		return err == nil
	})
	return d
}

// newStore returns a store in a database of its own, and the server. params belong to the URL.
func newStore(t *testing.T, params string) (*Driver, *mysqltest.Server) {
	t.Helper()
	server := mysqltest.Shared(t)
	return warm(t, openURL(t, server.URL()+"create=true"+params)), server
}

// renew renews the lease "a" of a key.
func renew(ctx context.Context, d *Driver, key string) (state driver.State, err error) {
	d.Renew(ctx, []driver.Ref{{Key: key, ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, e error) { state, err = reply.State, e })
	return state, err
}

var (
	noError    = ask.NoError
	mutex      = ask.Mutex
	acquire    = ask.Acquire
	release    = ask.Release
	holds      = ask.Holds
	eventually = await.Until
	findings   = ask.Findings
	finds      = ask.Finds
)
