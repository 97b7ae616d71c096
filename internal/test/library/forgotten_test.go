package library_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// said collects the log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) about(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for line := range strings.Lines(s.text.String()) {
		if strings.Contains(line, "nothing in the program can release it") && strings.Contains(line, "key="+key+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// overheard returns a client with leases that are renewed every 20 ms, its log, and its store.
func overheard(t *testing.T, ttl time.Duration) (*leasehold.Client, *said, *memdriver.Driver) {
	t.Helper()
	store, log := memdriver.New(), new(said)
	c := newClient(t, store, leasehold.WithTTL(ttl), leasehold.WithRenewFraction(float64(20*time.Millisecond)/float64(ttl)),
		leasehold.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	return c, log, store
}

// collect runs the garbage collector until ok returns true.
func collect(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the condition did not become true within a minute")
		}
	}
}

// holders returns how many hold a lock.
func holders(t *testing.T, store driver.Inspector, key string) int {
	t.Helper()
	snap, err := store.Inspect(t.Context(), key)
	check(t, err)
	return len(snap.Holders)
}

// forget takes a lock and drops its lease.
//
//go:noinline
func forget(t *testing.T, take func(context.Context) (*leasehold.Lease, error)) {
	if _, err := take(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLease_HR_F16_ForgottenOneIsToldOfOnceWithWhereItWasTaken(t *testing.T) {
	c, log, store := overheard(t, 2*time.Second)
	_, _, line, _ := runtime.Caller(0)
	for key, take := range map[string]func(context.Context) (*leasehold.Lease, error){
		"mutex":  func(ctx context.Context) (*leasehold.Lease, error) { return c.Mutex("mutex").Lock(ctx) },
		"try":    func(ctx context.Context) (*leasehold.Lease, error) { return c.Mutex("try").TryLock(ctx) },
		"reader": func(ctx context.Context) (*leasehold.Lease, error) { return c.RWMutex("reader").RLock(ctx) },
		"place":  func(ctx context.Context) (*leasehold.Lease, error) { return c.Semaphore("place", 3).Lock(ctx) },
		"line": func(ctx context.Context) (*leasehold.Lease, error) {
			return c.Mutex("line", leasehold.WithLocalHandover(9)).Lock(ctx)
		},
		"second": func(ctx context.Context) (*leasehold.Lease, error) {
			_, err := leasehold.All(c.Mutex("second"), c.Mutex("first")).Lock(ctx)
			return nil, err
		},
	} {
		forget(t, take)
		collect(t, func() bool { return len(log.about(key)) > 0 })
		told := log.about(key)[0]
		if !strings.Contains(told, "forgotten_test.go:") || !strings.Contains(told, "lease=") {
			t.Errorf("%s: %s", key, told)
		}
		if key == "mutex" && !strings.Contains(told, fmt.Sprintf("forgotten_test.go:%d", line+2)) {
			t.Errorf("%s: %s, want line %d", key, told, line+2)
		}
		if n := holders(t, store, key); n != 1 {
			t.Errorf("%s: held %d times: a program may mean to hold a lock for its life", key, n)
		}
	}
	renewed := c.Stats().Renewed
	collect(t, func() bool { return c.Stats().Renewed > renewed+20 })
	if n := len(log.about("mutex")); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestLease_HR_F16_NoneThatCanBeReachedIsToldOf(t *testing.T) {
	c, log, store := overheard(t, 2*time.Second)
	kept := lock(t, c, "kept")
	ctx := lock(t, c, "by its context").Context()
	derived, cancel := context.WithCancel(lock(t, c, "by a derived context").Context())
	defer cancel()
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- leasehold.Do(t.Context(), c.Mutex("do"), func(context.Context) error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	giveBack(t, lock(t, c, "released"))
	renewed := c.Stats().Renewed
	collect(t, func() bool { return c.Stats().Renewed > renewed+30 })
	for _, key := range []string{"kept", `"by its context"`, `"by a derived context"`, "do", "released"} {
		if told := log.about(key); len(told) > 0 {
			t.Errorf("%s", told)
		}
	}
	if holders(t, store, "by its context") != 1 || ctx.Err() != nil || derived.Err() != nil {
		t.Error("a lease ended")
	}
	close(leave)
	noErr(t, <-done)
	for _, ctx := range []context.Context{ctx, derived} {
		l, ok := leasehold.FromContext(ctx)
		if !ok {
			t.Error("the lease is not found")
		} else if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
	giveBack(t, kept)
}

// TestLease_HR_F16_ForgottenOneEndsWithItsContext: the watch for forgotten leases must not keep a
// lease alive.
func TestLease_HR_F16_ForgottenOneEndsWithItsContext(t *testing.T) {
	c, log, store := overheard(t, time.Second) // for which it stays closed
	ctx, cancel := context.WithCancel(t.Context())
	forget(t, func(context.Context) (*leasehold.Lease, error) { return c.Mutex("k").Lock(ctx) })
	collect(t, func() bool { return len(log.about("k")) > 0 })
	cancel()
	collect(t, func() bool { return holders(t, store, "k") == 0 })
}
