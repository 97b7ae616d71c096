package leaseholdtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// try takes the lock, which has to be free.
func try(t *testing.T, c *leasehold.Client) *leasehold.Lease {
	t.Helper()
	l, err := c.Mutex("k").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// everywhere runs a test in real time and in virtual time.
func everywhere(t *testing.T, f func(t *testing.T)) {
	t.Run("real", f)
	t.Run("virtual", func(t *testing.T) { synctest.Test(t, f) })
}

func TestHold_KeepsTheLockFromOthers(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		c, store := leaseholdtest.New(t)
		release := store.Hold("k")
		if _, err := c.Mutex("k").TryLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%v, want ErrHeld", err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := c.Mutex("k").Lock(t.Context())
			got <- err
		}()
		store.AwaitWaiters("k", 1)
		release()
		release() // of no effect
		noErr(t, <-got)
	})
}

// Tests release by defer, also after they have taken the lock away.
func TestHold_IsReleasedAfterTheTestHasTakenTheLock(t *testing.T) {
	for name, end := range map[string]func(store *leaseholdtest.Store){
		"lose":   func(store *leaseholdtest.Store) { store.Lose("k") },
		"break":  func(store *leaseholdtest.Store) { store.Break("k", "maintenance") },
		"outage": func(store *leaseholdtest.Store) { store.Down(); time.Sleep(time.Hour); store.Up() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store := leaseholdtest.New(t)
				release := store.Hold("k")
				end(store)
				l := try(t, c)
				release() // does not fail the test, and ends no other lease
				if state := l.State(); !state.Live() || !store.Held("k") {
					t.Errorf("the next lease is %v", state)
				}
				noErr(t, l.Release())
			})
		})
	}
}

func TestLoseAndBreak_EndTheLeaseAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		c, store := leaseholdtest.New(t)
		for name, end := range map[string]func(){
			"lose":  func() { store.Lose("k") },
			"break": func() { store.Break("k", "maintenance") },
		} {
			l := try(t, c)
			end()
			if l.Context().Err() == nil || l.State() != leasehold.Lost {
				t.Errorf("%s: %v, %v", name, l.State(), l.Context().Err())
			}
			if cause := context.Cause(l.Context()); !errors.Is(cause, leasehold.ErrLost) {
				t.Errorf("%s: cause %v", name, cause)
			}
			if store.Held("k") {
				t.Errorf("%s: the store still has it", name)
			}
			if err := l.Release(); !errors.Is(err, leasehold.ErrLost) {
				t.Errorf("%s: released with %v", name, err)
			}
		}
	})
}

func TestDownAndFreeze_EndWithUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := leaseholdtest.New(t)
		for name, row := range map[string]struct {
			fail func()
			want error
		}{"down": {store.Down, leasehold.ErrUnavailable}, "frozen": {store.Freeze, leasehold.ErrUnknown}} {
			row.fail()
			if _, err := c.Mutex("k").TryLock(t.Context()); !errors.Is(err, row.want) {
				t.Errorf("%s: %v, want %v", name, err, row.want)
			}
			time.AfterFunc(10*time.Second, store.Up)
			l, err := c.Mutex("k").Lock(t.Context()) // through the outage
			if err != nil {
				t.Fatal(err)
			}
			row.fail()
			<-l.Context().Done()
			if cause := context.Cause(l.Context()); !errors.Is(cause, leasehold.ErrLost) {
				t.Errorf("%s: the lease ended because of %v", name, cause)
			}
			store.Up()
			_ = l.Release() // it was lost
		}
	})
}

func TestDropReplies_LosesAnswersAndNotRequests(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		c, store := leaseholdtest.New(t)
		store.DropReplies(1)
		l := try(t, c) // it is repeated
		store.DropReplies(1)
		noErr(t, l.Release())
		store.AwaitHeld("k", false)
	})
	synctest.Test(t, func(t *testing.T) {
		c, store := leaseholdtest.New(t)
		store.DropReplies(-1) // none
		begin := time.Now()
		noErr(t, try(t, c).Release())
		if took := time.Since(begin); took > 0 {
			t.Errorf("answered after %v", took)
		}
	})
}

// No fault of the store fails the end of a test.
func TestNew_EndsWithoutAnErrorAfterEveryFault(t *testing.T) {
	for name, fault := range map[string]func(store *leaseholdtest.Store){
		"down":           func(store *leaseholdtest.Store) { store.Down() },
		"freeze":         func(store *leaseholdtest.Store) { store.Freeze() },
		"lost replies":   func(store *leaseholdtest.Store) { store.DropReplies(1000) },
		"negative count": func(store *leaseholdtest.Store) { store.DropReplies(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store := leaseholdtest.New(t)
				try(t, c)
				store.Hold("other")
				fault(store)
			})
		})
	}
}

func TestLocker_IsFree(t *testing.T) {
	noErr(t, leasehold.Do(t.Context(), leaseholdtest.Locker(t), func(context.Context) error { return nil }))
}
