package leaseholdcertmagic_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold-go/leasehold"
	leaseholdcertmagic "github.com/leasehold-go/leasehold/integrations/certmagic"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

const issue = "issue_cert_example.com" // as certmagic names a lock

// wrap returns the storage of two servers that share their files.
func wrap(t *testing.T) (a, b *leaseholdcertmagic.Storage, store *leaseholdtest.Store) {
	t.Helper()
	client, store := leaseholdtest.New(t)
	files := &certmagic.FileStorage{Path: t.TempDir()}
	return leaseholdcertmagic.Wrap(files, client), leaseholdcertmagic.Wrap(files, store.Client()), store
}

func lock(t *testing.T, s *leaseholdcertmagic.Storage) {
	t.Helper()
	if err := s.Lock(t.Context(), issue); err != nil {
		t.Fatal(err)
	}
}

// tries tries to get the lock.
func tries(t *testing.T, s *leaseholdcertmagic.Storage, want bool) {
	t.Helper()
	if ok, err := s.TryLock(t.Context(), issue); ok != want || err != nil {
		t.Errorf("tried with %t, %v; want %t, and no error", ok, err, want)
	}
}

func unlock(t *testing.T, s *leaseholdcertmagic.Storage) {
	t.Helper()
	if err := s.Unlock(t.Context(), issue); err != nil {
		t.Error(err)
	}
}

func TestStorage_ExcludesOthersUntilItIsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store := wrap(t)
		ctx, cancel := context.WithCancel(t.Context())
		if err := a.Lock(ctx, issue); err != nil {
			t.Fatal(err)
		}
		cancel()           // the context of a handshake ends long before the certificate is there
		tries(t, a, false) // the same process
		tries(t, b, false)
		got := make(chan error)
		go func() { got <- b.Lock(t.Context(), issue) }()
		store.AwaitWaiters(leaseholdcertmagic.Prefix+issue, 1)
		time.Sleep(time.Hour) // obtaining takes long
		if err := a.RenewLockLease(t.Context(), issue, time.Hour); err != nil {
			t.Error(err)
		}
		unlock(t, a)
		if err := <-got; err != nil {
			t.Error(err)
		}
		unlock(t, b)
		tries(t, a, true)
		unlock(t, a)
	})
}

func TestStorage_EndsTheWaitWithItsContextAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store := wrap(t)
		lock(t, a)
		for _, s := range []*leaseholdcertmagic.Storage{a, b} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := s.Lock(ctx, issue); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want DeadlineExceeded", err)
			}
			cancel()
		}
		store.AwaitWaiters(leaseholdcertmagic.Prefix+issue, 0)
		unlock(t, a)
		store.AwaitHeld(leaseholdcertmagic.Prefix+issue, false)
	})
}

func TestStorage_WaitsForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store := wrap(t)
		store.Down()
		got := make(chan error)
		go func() { got <- a.Lock(t.Context(), issue) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if ok, err := b.TryLock(ctx, issue); ok || !errors.Is(err, leasehold.ErrUnavailable) {
			t.Errorf("tried with %t, %v; want ErrUnavailable", ok, err)
		}
		time.Sleep(time.Hour)
		store.Up()
		if err := <-got; err != nil {
			t.Error(err)
		}
		unlock(t, a)
	})
}

// certmagic holds the lock over all its attempts, and asks for a renewal before each.
func TestStorage_TakesALostLockAgainBeforeTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store := wrap(t)
		lock(t, a)
		store.Down()
		time.Sleep(time.Hour)
		store.Up()
		lock(t, b) // has obtained the certificate
		if err := a.RenewLockLease(t.Context(), issue, time.Hour); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%v, want ErrHeld", err)
		}
		unlock(t, b)
		if err := a.RenewLockLease(t.Context(), issue, time.Hour); err != nil {
			t.Error(err)
		}
		tries(t, b, false)
		unlock(t, a)
		store.AwaitHeld(leaseholdcertmagic.Prefix+issue, false)
	})
}

// certmagic unlocks by name: a holder that has lost the lock must not unlock that of the next.
func TestStorage_UnlocksNoLockOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store := wrap(t)
		lock(t, a)
		store.Lose(leaseholdcertmagic.Prefix + issue)
		got := make(chan error, 1)
		go func() { got <- a.Lock(t.Context(), issue) }() // another goroutine of the process
		synctest.Wait()
		if err := a.Unlock(t.Context(), issue); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		tries(t, b, false)
		unlock(t, a)
		for _, err := range []error{a.Unlock(t.Context(), issue), a.RenewLockLease(t.Context(), issue, time.Hour)} {
			if !errors.Is(err, leasehold.ErrNotHeld) {
				t.Errorf("%v, want ErrNotHeld", err)
			}
		}
	})
}

// certmagic.CleanUpOwnLocks unlocks locks under which its other goroutines still work.
func TestStorage_KeepsNoLockThatIsUnlockedWhileItIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store := wrap(t)
		lock(t, a)
		store.Lose(leaseholdcertmagic.Prefix + issue)
		store.Freeze()
		renewed := make(chan error, 1)
		go func() { renewed <- a.RenewLockLease(t.Context(), issue, time.Hour) }()
		synctest.Wait() // it asks for the lock
		if err := a.Unlock(t.Context(), issue); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		store.Up()
		if err := <-renewed; !errors.Is(err, leasehold.ErrNotHeld) {
			t.Errorf("renewed with %v, want ErrNotHeld", err)
		}
		store.AwaitHeld(leaseholdcertmagic.Prefix+issue, false)
		lock(t, b)
		unlock(t, b)
	})
}

// certmagic itself takes the locks, and obtains a certificate once for two servers.
func TestStorage_ObtainsACertificateOnce(t *testing.T) {
	a, b, store := wrap(t)
	ca := &issuer{store: store}
	got := make(chan error, 2)
	for _, s := range []*leaseholdcertmagic.Storage{a, b} {
		var cfg *certmagic.Config
		cache := certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil }})
		t.Cleanup(cache.Stop)
		cfg = certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{ca}})
		go func() { got <- cfg.ObtainCertSync(t.Context(), "example.com") }()
	}
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if n := ca.issued.Load(); n != 1 || !ca.locked.Load() {
		t.Errorf("%d certificates, under a lock: %t; want 1, under a lock", n, ca.locked.Load())
	}
	store.AwaitHeld(leaseholdcertmagic.Prefix+issue, false)
}
