package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// server is a store in memory with the faults of a server.
type server struct {
	// skew is added to its clock, from which tokens come, unless its tokens are consecutive.
	skew        time.Duration
	consecutive bool

	mu     sync.Mutex
	store  storage
	before func(ctx context.Context, verb string) error // see intercept; nil does nothing
	dead   bool
	// stopped is closed when the server goes on, or is killed; nil while it
	// runs.
	stopped chan struct{}
	// cut loses requests before they are carried out.
	cut bool
	// slow is the time of each way.
	slow time.Duration
}

// storage is the store of a server.
type storage interface {
	driver.Driver
	driver.Inspector
	driver.Breaker
	driver.Marker
	driver.Watcher
}

// unmarked returns n new servers without marks, as before the first use.
func unmarked(n int) (all []*server) {
	for range n {
		all = append(all, &server{store: memdriver.New()})
	}
	return all
}

// servers returns n new servers, with their marks set, as after the first use.
func servers(n int) []*server {
	all := unmarked(n)
	for _, s := range all {
		_ = s.store.Mark(context.Background(), driver.Mark{}, "")
	}
	return all
}

func (s *server) kill() {
	s.set(func(s *server) {
		s.dead = true
		s.goOn()
	})
}

// restart brings a dead server back, without its data if it is empty.
func (s *server) restart(empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = false
	if empty {
		s.store = memdriver.New()
	}
}

// stop freezes the server. It carries out the requests of that time when it goes on, even if
// their callers have given up.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == nil {
		s.stopped = make(chan struct{})
	}
}

func (s *server) cont() { s.set((*server).goOn) }

func (s *server) goOn() {
	if s.stopped != nil {
		close(s.stopped)
		s.stopped = nil
	}
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// lose restarts the server without its data.
func (s *server) lose() {
	s.kill()
	s.restart(true)
}

// delay makes later requests to the server take d each way.
func (s *server) delay(d time.Duration) { s.set(func(s *server) { s.slow = d }) }

// cutOff loses later requests until it is called with false.
func (s *server) cutOff(cut bool) { s.set(func(s *server) { s.cut = cut }) }

// intercept calls f before each later request, with its verb; an error of f is the answer.
func (s *server) intercept(f func(ctx context.Context, verb string) error) {
	s.set(func(s *server) { s.before = f })
}

// hold acquires the lock at the server alone, by a visit if there is one.
func (s *server) hold(t testing.TB, id string, ttl time.Duration, visit ...string) {
	t.Helper()
	req := driver.Request{Key: "k", ID: id, TTL: ttl, Visit: strings.Join(visit, "")}
	if reply, err := s.store.Acquire(t.Context(), req); err != nil || reply.State != driver.Granted {
		t.Fatalf("%+v, %v", reply, err)
	}
}

// free releases the lock at the server alone.
func (s *server) free(t testing.TB, id string) {
	t.Helper()
	if _, err := s.store.Release(t.Context(), driver.Ref{Key: "k", ID: id}); err != nil {
		t.Fatal(err)
	}
}

// inside returns the holders at the server.
func (s *server) inside(t testing.TB) []driver.Holder {
	t.Helper()
	snap, err := s.store.Inspect(t.Context(), "k")
	noError(t, err)
	return snap.Holders
}

// wantInside checks the ids of the holders at each server.
func wantInside(t testing.TB, all []*server, want ...string) {
	t.Helper()
	for i, s := range all {
		var got []string
		for _, h := range s.inside(t) {
			got = append(got, h.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("inside at node %d of %d are %v, want %v", i+1, len(all), got, want)
		}
	}
}

// marked returns the quarantine of the server's mark, and whether there is a mark.
func (s *server) marked(t testing.TB) (left time.Duration, ok bool) {
	t.Helper()
	mark, ok, err := s.store.Marked(t.Context())
	noError(t, err)
	return mark.Quarantine, ok
}

var (
	errRefused = fmt.Errorf("connection refused: %w", driver.ErrUnavailable)
	errReset   = errors.New("connection reset")
)

// ask carries out a request as a client of the server sees it.
func ask[T any](ctx context.Context, s *server, verb string, op func(storage) (T, error)) (none T, err error) {
	s.mu.Lock()
	dead, slow, store, before := s.dead, s.slow, s.store, s.before
	well := !dead && slow == 0 && s.stopped == nil && !s.cut
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, verb); err != nil {
			return none, err
		}
	}
	switch {
	case dead:
		return none, errRefused
	case well:
		return op(store)
	}
	var got T
	done := make(chan error, 1)
	go func() {
		done <- s.serve(ctx, slow, func(store storage) (err error) {
			got, err = op(store)
			return err
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			return none, err
		}
		return got, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (s *server) serve(ctx context.Context, slow time.Duration, op func(storage) error) error {
	time.Sleep(slow)
	s.mu.Lock()
	for s.stopped != nil && !s.dead {
		stopped := s.stopped
		s.mu.Unlock()
		<-stopped
		s.mu.Lock()
	}
	dead, cut, store := s.dead, s.cut, s.store
	s.mu.Unlock()
	if dead {
		return errReset
	}
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	err := op(store)
	time.Sleep(slow)
	return err
}

// client is a driver on a server, as one process has it.
type client struct{ *server }

func (c client) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return ask(ctx, c.server, "acquire", func(s storage) (driver.Reply, error) {
		if !c.consecutive {
			req.MinToken = max(req.MinToken, time.Now().Add(c.skew).UnixMicro()-1)
		}
		return s.Acquire(context.Background(), req)
	})
}

func (c client) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	replies, err := ask(ctx, c.server, "renew", func(s storage) ([]driver.Reply, error) {
		replies := make([]driver.Reply, len(refs))
		s.Renew(context.Background(), refs, func(i int, reply driver.Reply, _ error) { replies[i] = reply })
		return replies, nil
	})
	for i := range refs {
		if err != nil {
			each(i, driver.Reply{}, err)
		} else {
			each(i, replies[i], nil)
		}
	}
}

func (c client) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return ask(ctx, c.server, "release", func(s storage) (driver.Reply, error) { return s.Release(context.Background(), ref) })
}

func (c client) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return ask(ctx, c.server, "inspect", func(s storage) (driver.Snapshot, error) { return s.Inspect(context.Background(), key) })
}

func (c client) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return ask(ctx, c.server, "break", func(s storage) (driver.Reply, error) {
		return s.Break(context.Background(), key, id, reason)
	})
}

func (c client) List(context.Context, string, string) ([]string, string, error) {
	return nil, "", errors.ErrUnsupported
}

func (c client) Marked(ctx context.Context) (driver.Mark, bool, error) {
	type answer struct {
		mark driver.Mark
		ok   bool
	}
	got, err := ask(ctx, c.server, "marked", func(s storage) (a answer, err error) {
		a.mark, a.ok, err = s.Marked(context.Background())
		return a, err
	})
	return got.mark, got.ok, err
}

func (c client) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return ask(ctx, c.server, "reserve", func(s storage) (bool, error) { return s.Reserve(context.Background(), by, life) })
}

func (c client) Mark(ctx context.Context, mark driver.Mark, by string) error {
	_, err := ask(ctx, c.server, "mark", func(s storage) (any, error) { return nil, s.Mark(context.Background(), mark, by) })
	return err
}

// Watch listens to the store that the server has now.
func (c client) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	c.mu.Lock()
	store := c.store
	c.mu.Unlock()
	return store.Watch(f)
}

func (c client) Close() error { return nil }
