package server_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// staged is a store whose state the test sets. The test may delay the looks of watchers: they
// read at once, and return when the test allows it.
type staged struct {
	*memdriver.Driver
	requests chan struct{} // receives a value when a request has looked

	mu   sync.Mutex
	snap driver.Snapshot
	hold chan struct{} // closed when the looks of watchers may return; nil without a delay
	held chan struct{} // receives a value when a look has read, and waits
}

func (s *staged) show(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = driver.Snapshot{Holders: []driver.Holder{{ID: id, Token: 1}}}
}

// slow delays the looks of watchers, and waits until one has read.
func (s *staged) slow(t *testing.T) (letGo func()) {
	t.Helper()
	hold := make(chan struct{})
	s.mu.Lock()
	s.hold = hold
	s.mu.Unlock()
	soon(t, "a watcher looks", s.held)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.hold = nil
		s.mu.Unlock()
		close(hold)
	})
}

func (s *staged) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	s.mu.Lock()
	snap, hold := s.snap, s.hold
	s.mu.Unlock()
	snap.Key = key
	if ctx.Value(http.ServerContextKey) != nil { // not of a watcher
		select {
		case s.requests <- struct{}{}:
		default:
		}
		return snap, nil
	}
	if hold != nil {
		select {
		case s.held <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-ctx.Done():
			return driver.Snapshot{}, ctx.Err()
		}
	}
	return snap, nil
}

func holderOf(l wire.Lock) string {
	if len(l.Holders) != 1 {
		return ""
	}
	return l.Holders[0].LeaseID
}

// The last look of a watcher may be older than the state that a client has seen.
func TestWatch_NeverGoesBackBehindWhatTheClientHasSeen(t *testing.T) {
	for _, next := range []string{"c", "a"} { // the second is the state of the watcher's first look
		bubble(t, next, func(t *testing.T) {
			store := &staged{Driver: memdriver.New(), requests: make(chan struct{}, 1), held: make(chan struct{}, 1)}
			base := listenInMemory(t, store)
			store.show("a")
			others := tune(t, base+"/v1/events?name=k")
			var lock wire.Lock
			if others.hear("lock", &lock); holderOf(lock) != "a" {
				t.Fatalf("%+v", lock)
			}
			letGo := store.slow(t)
			defer letGo()

			store.show("b")
			_, lock, tag := watcher(t, base+"/v1/locks/k", "", "")
			if holderOf(lock) != "b" {
				t.Fatalf("%+v", lock)
			}
			<-store.requests
			later := tune(t, base+"/v1/events?name=k")
			told := make(chan wire.Lock, 1)
			go func() {
				_, state, _ := watcher(t, base+"/v1/locks/k", tag, "30")
				told <- state
			}()
			<-store.requests // the lock has the state that the client has seen
			store.show(next)
			letGo()
			if lock = soon(t, "a change is reported", told); holderOf(lock) != next {
				t.Errorf("a wait for a change shows %q after b, not %q", holderOf(lock), next)
			}
			if next == "a" {
				return
			}
			if later.hear("lock", &lock); holderOf(lock) == "a" {
				t.Error("a stream begins with a state that is older than the stream")
			}
		})
	}
}
