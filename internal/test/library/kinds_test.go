package library_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func TestAll_AcceptsEverythingAndKeepsTheStrongestUse(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, b := newClient(t, store), newClient(t, store)
		gpu := a.Semaphore("gpu", 4)
		inner := leasehold.All(a.Mutex("m"), gpu, a.RWMutex("rw").RLocker())
		whole, err := leasehold.All(inner, gpu.Places(3), a.RWMutex("w"), leasehold.All(inner, a.Mutex("rw"))).Lock(t.Context())
		check(t, err)
		var keys []string
		for _, p := range whole.Parts() {
			keys = append(keys, p.Key())
			if token := whole.Tokens()[p.Key()]; token == 0 || token != p.Token() {
				t.Errorf("token %d of %s, want %d", token, p.Key(), p.Token())
			}
		}
		if want := []string{"gpu", "m", "rw", "w"}; !slices.Equal(keys, want) || len(whole.Tokens()) != len(want) {
			t.Errorf("keys %q, tokens %v, want %q", keys, whole.Tokens(), want)
		}
		_, err = b.RWMutex("rw").RLocker().TryLock(t.Context()) // the stronger use is the writer's
		wantErr(t, err, leasehold.ErrHeld)
		_, err = b.Semaphore("gpu", 4).TryLockN(t.Context(), 2) // three places are taken
		wantErr(t, err, leasehold.ErrHeld)
		fourth := must(t)(b.Semaphore("gpu", 4).TryLock(t.Context()))
		_, err = b.Semaphore("gpu", 4).TryLock(t.Context())
		wantErr(t, err, leasehold.ErrHeld)
		giveBack(t, fourth)
		if whole.State() != leasehold.Held || whole.Remaining() <= 0 {
			t.Errorf("%v for %v", whole.State(), whole.Remaining())
		}
		giveBack(t, whole)
		if whole.State() != leasehold.Released || whole.Remaining() != 0 {
			t.Errorf("%v for %v", whole.State(), whole.Remaining())
		}
		if l, ok := leasehold.FromContext(whole.Context()); ok {
			t.Errorf("one lease %v of several", l)
		}
		one, err := leasehold.All(gpu).Lock(t.Context())
		check(t, err)
		three := must(t)(b.Semaphore("gpu", 4).TryLockN(t.Context(), 3))
		if l, ok := leasehold.MultiFromContext(three.Context()); ok {
			t.Errorf("several leases %v of one", l)
		}
		giveBack(t, three, one)

		var none *leasehold.Mutex
		for _, wrong := range []*leasehold.Multi{
			leasehold.All(a.Mutex("m"), none), leasehold.All(gpu.Places(5)), leasehold.All(leasehold.All()),
			leasehold.All(a.Mutex("m"), b.Mutex("n")),
		} {
			_, err := wrong.TryLock(t.Context())
			wantErr(t, err, leasehold.ErrInvalid)
		}
	})
}

// A lease that becomes less than it was.

// short is a context for one request that is not answered.
func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDowngrade_HR_A3_AndDetachExcludeEachOther(t *testing.T) {
	for v, calls := range map[verb][2]func(*leasehold.Lease, context.Context) error{
		acquire: {(*leasehold.Lease).Downgrade, (*leasehold.Lease).Detach},
		renew:   {(*leasehold.Lease).Detach, (*leasehold.Lease).Downgrade},
	} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithTTL(ttl))
			w := must(t)(c.RWMutex("k").Lock(t.Context()))
			d.on(v, 1, fault{delay: time.Second})
			done := make(chan error, 1)
			go func() { done <- calls[0](w, t.Context()) }()
			synctest.Wait()
			wantErr(t, calls[1](w, t.Context()), leasehold.ErrMismatch)
			noErr(t, <-done)
		})
	}
}

// TestAll_ReleaseTakesOneTimeout: the number of locks does not matter, nor whether the call fails
// at the last of them.
func TestAll_ReleaseTakesOneTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(time.Hour), leasehold.WithReleaseTimeout(5*time.Second))
		var parts []leasehold.Part
		for i := range 10 {
			parts = append(parts, c.Mutex(fmt.Sprint("k", i)))
		}
		bounded := func(what string, call func() error) {
			t.Helper()
			d.on(release, 0, hangs)
			start := time.Now()
			err := call()
			if took := time.Since(start); took > 6*time.Second || err == nil {
				t.Errorf("%s took %v with a release timeout of 5 s: %v", what, took, err)
			}
			d.heal()
			time.Sleep(time.Minute)
		}
		l, err := leasehold.All(parts...).Lock(t.Context())
		check(t, err)
		bounded("Release", l.Release)
		other, _ := open(t, store)
		lock(t, other, "k9")
		bounded("TryLock", func() error { _, err := leasehold.All(parts...).TryLock(t.Context()); return err })
	})
}
