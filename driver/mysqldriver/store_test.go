package mysqldriver

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
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

func mutex(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: time.Minute, ConfirmWindow: time.Second}
}

func acquire(t *testing.T, d *Driver, req driver.Request, want driver.State) driver.Reply {
	t.Helper()
	reply, err := d.Acquire(t.Context(), req)
	if err != nil || reply.State != want {
		t.Fatalf("acquire %q by %s: %+v, %v; want state %v", req.Key, req.ID, reply, err, want)
	}
	return reply
}

func release(t *testing.T, d *Driver, key, id string) {
	t.Helper()
	if reply, err := d.Release(t.Context(), driver.Ref{Key: key, ID: id}); err != nil || reply.State != driver.Released {
		t.Fatalf("release %q by %s: %+v, %v", key, id, reply, err)
	}
}

// renew renews the lease "a" of a key.
func renew(ctx context.Context, d *Driver, key string) (state driver.State, err error) {
	d.Renew(ctx, []driver.Ref{{Key: key, ID: "a", TTL: time.Minute}}, func(_ int, reply driver.Reply, e error) { state, err = reply.State, e })
	return state, err
}

// holds reports whether the lease id is in the table, alone.
func holds(t *testing.T, d *Driver, key, id string) bool {
	t.Helper()
	snap, err := d.Inspect(t.Context(), key)
	noError(t, err)
	return len(snap.Holders) == 1 && snap.Holders[0].ID == id
}

var eventually = await.Until
