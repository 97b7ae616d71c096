//go:build linux

package postgresdriver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestAcquire_AFrozenServerCostsTheTimeoutAndThenGoesOn(t *testing.T) {
	live.Test(t)
	server := postgrestest.Start(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=500ms"))
	server.Stop(t)
	start := time.Now()
	_, err := d.Acquire(t.Context(), mutex("k", "a"))
	if err == nil {
		t.Error("a frozen server has answered")
	}
	if took := time.Since(start); took > 20*time.Second {
		live.Late(t, "%v after %v", err, took)
	}
	server.Cont(t)
	eventually(t, func() bool {
		reply, err := d.Acquire(t.Context(), mutex("k", "a"))
		return err == nil && reply.State == driver.Granted
	})
}

// A try of a renewal has half of the lease's remaining time. On a slow server each try would
// otherwise start with a new connection.
func TestRenew_ATryThatIsGivenUpCostsNoConnection(t *testing.T) {
	server := postgrestest.Start(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=30s"))
	boss := admin(t, server.URL())
	for _, key := range []string{"k", "l"} {
		if _, err := d.Acquire(t.Context(), mutex(key, "a")); err != nil {
			t.Fatal(err)
		}
	}
	// renew returns the error of each ref.
	renew := func(patience time.Duration, keys ...string) []error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var refs []driver.Ref
		for _, key := range keys {
			refs = append(refs, driver.Ref{Key: key, ID: "a", TTL: time.Minute})
		}
		errs := make([]error, len(refs))
		heard := make([]int, len(refs))
		d.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
			heard[i]++
			if errs[i] = err; err == nil && reply.State != driver.Granted {
				t.Errorf("%+v", reply)
			}
		})
		for i, n := range heard {
			if n != 1 {
				t.Errorf("%d answers for %q", n, keys[i])
			}
		}
		return errs
	}
	for _, err := range renew(time.Minute, "k", "l") {
		if err != nil {
			t.Fatal(err)
		}
	}
	before := sessions(t, boss)
	server.Stop(t)
	for range 2 {
		if err := renew(50*time.Millisecond, "k")[0]; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := renew(50*time.Millisecond, "k", "l")[0]; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	server.Cont(t)
	for _, err := range renew(time.Minute, "k", "l") {
		if err != nil {
			t.Error(err)
		}
	}
	after := sessions(t, boss)
	for _, pid := range before { // there may be new sessions
		if !slices.Contains(after, pid) {
			t.Errorf("sessions %v, and then %v", before, after)
		}
	}
}
