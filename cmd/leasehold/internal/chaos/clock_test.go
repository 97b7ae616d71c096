//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// timeless opens two clients of a server with a clock that can be stepped.
func timeless(t *testing.T) (a, b *leasehold.Client, clock *redistest.Clock) {
	t.Helper()
	server, clock := redistest.StartWithClock(t)
	open := func() *leasehold.Client {
		d, err := open(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		c, err := leasehold.New(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return open(), open(), clock
}

func hold(t *testing.T, lock func(context.Context) (*leasehold.Lease, error)) *leasehold.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	lease, err := lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestClock_P1_StepBackLetsNobodyInEarly(t *testing.T) {
	t.Parallel()
	a, b, clock := timeless(t)
	fixed := []leasehold.Option{leasehold.WithTTL(ttl), leasehold.WithoutRenewal()}
	for _, row := range []struct {
		name          string
		first, second func(context.Context) (*leasehold.Lease, error)
	}{
		{"mutex", a.Mutex("mutex", fixed...).Lock, b.Mutex("mutex").Lock},
		{"reader", a.RWMutex("rw", fixed...).RLock, b.RWMutex("rw").Lock},
	} {
		held := hold(t, row.first)
		clock.Step(-time.Second)
		entered := hold(t, row.second)
		if held.Context().Err() == nil {
			t.Errorf("%s: a second client got the lock while the lease was live", row.name)
		}
		if entered.Token() <= held.Token() {
			t.Errorf("%s: token %d after %d", row.name, entered.Token(), held.Token())
		}
	}
}

// TestClock_P2_P4_StepForwardIsToldAndFenced ends a lease early on the server.
// The next renewal reports the loss, and until then the register refuses writes of the holder.
func TestClock_P2_P4_StepForwardIsToldAndFenced(t *testing.T) {
	t.Parallel()
	a, b, clock := timeless(t)
	stale := hold(t, a.Mutex("k", leasehold.WithTTL(ttl)).Lock)
	clock.Step(2 * ttl)
	fresh := hold(t, b.Mutex("k", leasehold.WithTTL(time.Minute)).Lock)
	if fresh.Token() <= stale.Token() {
		t.Errorf("token %d after %d", fresh.Token(), stale.Token())
	}
	var register chaos.Memory
	for _, w := range []struct {
		chaos.Write
		want bool
	}{
		{chaos.Write{Key: "k", Who: "fresh", Token: fresh.Token()}, true},
		{chaos.Write{Key: "k", Who: "stale", Token: stale.Token()}, false},
	} {
		accepted := false
		if err := register.Write(w.Write, &accepted); err != nil || accepted != w.want {
			t.Errorf("the %s write: accepted %v, %v", w.Who, accepted, err)
		}
	}
	select {
	case <-stale.Context().Done():
	case <-time.After(20 * ttl):
		t.Fatal("the loss was not reported")
	}
	if cause := context.Cause(stale.Context()); !errors.Is(cause, leasehold.ErrLost) {
		t.Errorf("the cause is %v, want ErrLost", cause)
	}
}
