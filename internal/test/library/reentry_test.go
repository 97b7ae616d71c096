package library_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func TestReentry_NeitherShortensNorAdds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
		outer := lock(t, c, "k")
		want := outer.Deadline()
		time.Sleep(time.Second)
		for _, ttl := range []time.Duration{time.Second, time.Hour} {
			inner := must(t)(c.Mutex("k", leasehold.WithTTL(ttl)).Lock(outer.Context()))
			if !inner.Deadline().Equal(want) {
				t.Errorf("inner deadline is off by %v", inner.Deadline().Sub(want))
			}
			giveBack(t, inner)
		}
		if !outer.Deadline().Equal(want) || outer.State() != leasehold.Held {
			t.Errorf("outer deadline moved by %v, %v", outer.Deadline().Sub(want), outer.State())
		}
	})
}

func TestReentry_OwnerIsOfOneLock(t *testing.T) {
	owner := leasehold.WithReentrantOwner("worker-7")
	_, err := leasehold.New(memdriver.New(), owner)
	wantErr(t, err, leasehold.ErrInvalid)
	if err != nil && !strings.Contains(err.Error(), "worker-7") {
		t.Errorf("%v does not name the owner", err)
	}
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithName("web"))
		wantErr(t, c.Election("e", "", owner).Lead(t.Context(), nil), leasehold.ErrInvalid)
		if n := d.count(acquire); n != 0 {
			t.Errorf("%d requests for a lock that is refused", n)
		}
		for _, name := range []leasehold.Option{leasehold.WithName("api"), owner} { // in either order
			outer := lock(t, c, "k", owner, name)
			inner := lock(t, c, "k", name, owner)
			if inner.Token() != outer.Token() || outer.Owner() != "worker-7" {
				t.Errorf("tokens %d and %d of %q", outer.Token(), inner.Token(), outer.Owner())
			}
			_, err := c.Mutex("k").TryLock(t.Context()) // another lock of the same client
			wantErr(t, err, leasehold.ErrHeld)
			giveBack(t, inner, outer)
		}
	})
}

// TestReentry_ReleasedInnerLeaseDoesNotHideTheOuter: a context that was kept from a lease
// which has been released still re-enters the lease around it.
func TestReentry_ReleasedInnerLeaseDoesNotHideTheOuter(t *testing.T) {
	for _, opts := range [][]leasehold.Option{nil, {leasehold.WithLocalHandover(10)}} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, _ := open(t, store, opts...)
			outer := lock(t, c, "k")
			inner := must(t)(c.Mutex("k").Lock(outer.Context()))
			kept := context.WithoutCancel(inner.Context())
			giveBack(t, inner)
			ctx, cancel := context.WithTimeout(kept, time.Second)
			defer cancel()
			again, err := c.Mutex("k").Lock(ctx)
			if err != nil {
				t.Fatalf("it waits for itself: %v", err)
			}
			giveBack(t, again)
			giveBack(t, outer)
		})
	}
}
