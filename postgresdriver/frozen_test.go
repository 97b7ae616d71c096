//go:build linux

package postgresdriver

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/postgrestest"
)

func TestAcquire_AFrozenServerCostsTheTimeoutAndThenGoesOn(t *testing.T) {
	server := postgrestest.Start(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=500ms"))
	server.Stop(t)
	start := time.Now()
	_, err := d.Acquire(t.Context(), mutex("k", "a"))
	if took := time.Since(start); err == nil || took > 20*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	server.Cont(t)
	eventually(t, func() bool {
		reply, err := d.Acquire(t.Context(), mutex("k", "a"))
		return err == nil && reply.State == driver.Granted
	})
}

func TestAcquire_AServerThatIsKilledRemembersWhatItAcknowledged(t *testing.T) {
	server := postgrestest.Start(t, "synchronous_commit=on")
	d := warm(t, openURL(t, server.URL()+"&create=true"))
	before, err := d.Acquire(t.Context(), mutex("k", "a"))
	if err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	if _, err := d.Acquire(t.Context(), mutex("k", "b")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
	server.Restart(t)
	eventually(t, func() bool {
		reply, err := d.Acquire(t.Context(), mutex("k", "b"))
		return err == nil && reply.State == driver.Busy && reply.Holders[0].Token == before.Token
	})
}
