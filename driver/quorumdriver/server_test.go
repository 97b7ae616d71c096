package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

// server is a store in memory with the faults of a server.
type server struct {
	// skew is added to its clock, from which tokens come.
	skew time.Duration

	mu    sync.Mutex
	store *memdriver.Driver
	dead  bool
	// stopped is closed when the server goes on, or is killed; nil while it
	// runs.
	stopped chan struct{}
	// cut loses requests before they are carried out, and lost their answers.
	cut, lost bool
	// slow is the time of each way.
	slow time.Duration
}

// servers returns n new servers, with their marks set, as after the first use.
func servers(n int) (all []*server) {
	for range n {
		s := &server{store: memdriver.New()}
		_ = s.store.Mark(context.Background(), driver.Mark{}, "")
		all = append(all, s)
	}
	return all
}

func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	s.goOn()
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

func (s *server) cont() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goOn()
}

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

// suffer implements victim.
func (s *server) suffer(way int, d time.Duration) string {
	type change func(*server)
	ill, well, what := change(func(s *server) { s.cut = true }), change(func(s *server) { s.cut = false }), "is cut off"
	switch way {
	case 1:
		ill, well, what = func(s *server) { s.lost = true }, func(s *server) { s.lost = false }, "its answers are lost"
	case 2:
		ill, well, what = func(s *server) { s.slow = d / 10 }, func(s *server) { s.slow = 0 }, "is slow"
	}
	s.set(ill)
	time.Sleep(d)
	s.set(well)
	return what
}

// open implements victim.
func (s *server) open(testing.TB) driver.Driver { return client{s} }

var (
	errRefused = fmt.Errorf("connection refused: %w", driver.ErrUnavailable)
	errReset   = errors.New("connection reset")
)

// ask carries out a request as a client of the server sees it.
func ask[T any](ctx context.Context, s *server, op func(*memdriver.Driver) (T, error)) (none T, err error) {
	s.mu.Lock()
	dead, slow, store := s.dead, s.slow, s.store
	well := !dead && slow == 0 && s.stopped == nil && !s.cut && !s.lost
	s.mu.Unlock()
	switch {
	case dead:
		return none, errRefused
	case well:
		return op(store)
	}
	var got T
	done := make(chan error, 1)
	go func() {
		done <- s.serve(ctx, slow, func(store *memdriver.Driver) (err error) {
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

func (s *server) serve(ctx context.Context, slow time.Duration, op func(*memdriver.Driver) error) error {
	time.Sleep(slow)
	s.mu.Lock()
	for s.stopped != nil && !s.dead {
		stopped := s.stopped
		s.mu.Unlock()
		<-stopped
		s.mu.Lock()
	}
	dead, cut, lost, store := s.dead, s.cut, s.lost, s.store
	s.mu.Unlock()
	if dead {
		return errReset
	}
	var err error
	if !cut {
		err = op(store)
	}
	if cut || lost {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(slow)
	return err
}

// client is a driver on a server, as one process has it.
type client struct{ *server }

func (c client) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return ask(ctx, c.server, func(s *memdriver.Driver) (driver.Reply, error) {
		req.MinToken = max(req.MinToken, time.Now().Add(c.skew).UnixMicro()-1)
		return s.Acquire(context.Background(), req)
	})
}

func (c client) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	replies, err := ask(ctx, c.server, func(s *memdriver.Driver) ([]driver.Reply, error) {
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
	return ask(ctx, c.server, func(s *memdriver.Driver) (driver.Reply, error) { return s.Release(context.Background(), ref) })
}

func (c client) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return ask(ctx, c.server, func(s *memdriver.Driver) (driver.Snapshot, error) { return s.Inspect(context.Background(), key) })
}

func (c client) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return ask(ctx, c.server, func(s *memdriver.Driver) (driver.Reply, error) {
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
	got, err := ask(ctx, c.server, func(s *memdriver.Driver) (a answer, err error) {
		a.mark, a.ok, err = s.Marked(context.Background())
		return a, err
	})
	return got.mark, got.ok, err
}

func (c client) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return ask(ctx, c.server, func(s *memdriver.Driver) (bool, error) { return s.Reserve(context.Background(), by, life) })
}

func (c client) Mark(ctx context.Context, mark driver.Mark, by string) error {
	_, err := ask(ctx, c.server, func(s *memdriver.Driver) (any, error) { return nil, s.Mark(context.Background(), mark, by) })
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

// quorumOf returns another process's quorum of the servers.
func quorumOf(t testing.TB, all []*server, opts ...quorumdriver.Option) *quorumdriver.Driver {
	t.Helper()
	var nodes []driver.Driver
	for _, s := range all {
		nodes = append(nodes, client{s})
	}
	return open(t, nodes, opts...)
}
