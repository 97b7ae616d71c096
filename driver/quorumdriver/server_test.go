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
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// server is a store in memory with the faults of a server.
type server struct {
	// skew is added to its clock, from which tokens come, unless its tokens are consecutive.
	skew        time.Duration
	consecutive bool

	mu     sync.Mutex
	store  storage
	before func(ctx context.Context, verb intercept.Verb) error // see intercept; nil does nothing
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
func (s *server) intercept(f func(ctx context.Context, verb intercept.Verb) error) {
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
	_, err := s.store.Release(t.Context(), driver.Ref{Key: "k", ID: id})
	noError(t, err)
}

// breaks breaks a lease at the server alone.
func (s *server) breaks(t testing.TB, key, id, reason string) {
	t.Helper()
	_, err := s.store.Break(t.Context(), key, id, reason)
	noError(t, err)
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

// client returns a driver on the server, as one process has it. Close leaves the server as it is.
func (s *server) client() driver.Driver {
	return &intercept.Driver{Store: s.current, Through: s.through}
}

// current returns the store that the server has now.
func (s *server) current() driver.Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store
}

// through carries out a message as a client of the server sees it.
func (s *server) through(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
	s.mu.Lock()
	dead, slow, before := s.dead, s.slow, s.before
	well := !dead && slow == 0 && s.stopped == nil && !s.cut
	s.mu.Unlock()
	if m.Verb == intercept.Close {
		return nil
	}
	if before != nil {
		if err := before(ctx, m.Verb); err != nil {
			return err
		}
	}
	op := func() error {
		if m.Verb == intercept.Acquire && !s.consecutive {
			m.Request.MinToken = max(m.Request.MinToken, time.Now().Add(s.skew).UnixMicro()-1)
		}
		return send(context.Background())
	}
	switch {
	case dead:
		return errRefused
	case well:
		return op()
	}
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, slow, op) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *server) serve(ctx context.Context, slow time.Duration, op func() error) error {
	time.Sleep(slow)
	s.mu.Lock()
	for s.stopped != nil && !s.dead {
		stopped := s.stopped
		s.mu.Unlock()
		<-stopped
		s.mu.Lock()
	}
	dead, cut := s.dead, s.cut
	s.mu.Unlock()
	if dead {
		return errReset
	}
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	err := op()
	time.Sleep(slow)
	return err
}
