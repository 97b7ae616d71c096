package leaseholdtest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// reports is an HTTP handler that works under a lock.
func reports(locks *leasehold.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran, err := leasehold.TryDo(r.Context(), locks.Mutex("report"), func(context.Context) error { return nil })
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !ran:
			http.Error(w, "a report is being made", http.StatusConflict)
		}
	})
}

// A handler reports that the lock is held, or that the store is away.
func TestExample_Handler(t *testing.T) {
	locks, store := leaseholdtest.New(t)
	ask := func() int {
		w := httptest.NewRecorder()
		reports(locks).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/report", nil))
		return w.Code
	}
	if code := ask(); code != http.StatusOK {
		t.Errorf("free: %d", code)
	}
	release := store.Hold("report")
	if code := ask(); code != http.StatusConflict {
		t.Errorf("held: %d", code)
	}
	release()
	store.Down()
	if code := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("away: %d", code)
	}
}

// poll works in a loop for as long as its lease lasts.
func poll(ctx context.Context, lock leasehold.Locker, work func()) error {
	return leasehold.Do(ctx, lock, func(ctx context.Context) error {
		for {
			select {
			case <-time.After(time.Second):
				work()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// A loop stops when its lease is lost. Time is virtual, so the test takes no time.
func TestExample_Loop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, store := leaseholdtest.New(t)
		rounds := 0
		ended := make(chan error, 1)
		go func() { ended <- poll(t.Context(), locks.Mutex("poll"), func() { rounds++ }) }()
		time.Sleep(time.Hour)
		store.Lose("poll")
		if err := <-ended; !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the loop ended with %v", err)
		}
		if rounds < 3598 {
			t.Errorf("%d rounds in an hour", rounds)
		}
	})
}

// A leader that loses the store steps down, and one leads again when it is back.
func TestExample_Election(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, store := leaseholdtest.New(t)
		terms := make(chan context.Context)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- locks.Election("scheduler", "host-1").Lead(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
				terms <- ctx
				<-ctx.Done()
				return nil
			})
		}()
		first := <-terms
		store.Down()
		<-first.Done()
		store.Up()
		<-terms
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
