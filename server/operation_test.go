package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/operations"
)

var patterns = []string{"simple", "redlock", "retry", "watchdog", "reentrant", "read", "write", "fair"}

func TestOperation_EveryPatternAnswersByteForByte(t *testing.T) {
	// The lease of a simple lock lasts for the length of the operation.
	_, base := serve(t, memdriver.New(), server.WithOperation(operations.Operation{
		Length: time.Minute, Do: func(context.Context, *leasehold.Lease) error { return nil },
	}))
	for _, p := range patterns {
		got := ask(t, "POST", base+"/api/locks/"+p+"/user123", "")
		if want := `{"success":true,"resourceId":"user123","durationMs":60000}`; got.status != 200 || got.body != want {
			t.Errorf("%s: %d %q", p, got.status, got.body)
		}
		if ct := got.header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: content type %q", p, ct)
		}
	}
	if text := answered(t, 200, ask(t, "GET", base+"/health", "")); text != `{"status":"ok","service":"distributed-lock"}` {
		t.Errorf("%q", text)
	}
	got := ask(t, "POST", base+"/api/locks/simple/a%2Fb%20%3C%C3%A9%3E", "")
	if want := `{"success":true,"resourceId":"a/b <é>","durationMs":60000}`; got.body != want {
		t.Errorf("%q, want %q", got.body, want)
	}
}

// gate is an operation that runs until open is closed.
type gate struct {
	inside chan *leasehold.Lease
	open   chan struct{}
}

func newGate() *gate {
	return &gate{inside: make(chan *leasehold.Lease, 64), open: make(chan struct{})}
}

func (g *gate) operation() operations.Operation {
	return operations.Operation{Do: func(ctx context.Context, l *leasehold.Lease) error {
		g.inside <- l
		select {
		case <-g.open:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

func TestOperation_ReadersRunTogetherAndWritersAlone(t *testing.T) {
	g := newGate()
	_, base := serve(t, memdriver.New(), server.WithOperation(g.operation()))
	done := make(chan exchange, 3)
	for range 2 {
		go func() { done <- ask(t, "POST", base+"/api/locks/read/r", "") }()
	}
	<-g.inside
	<-g.inside
	answered(t, 409, ask(t, "POST", base+"/api/locks/write/r", ""))
	go func() { done <- ask(t, "POST", base+"/api/locks/retry/r", "") }() // waits until the lock is free
	close(g.open)
	for range 3 {
		answered(t, 200, <-done)
	}
}

func TestOperation_AClientThatGoesDoesNotEndIt(t *testing.T) {
	g := newGate()
	town := newTown(t, listenInMemory, nil, server.WithOperation(g.operation()))
	client := town.send(0, "POST", "/api/locks/simple/k", "")
	lease := <-g.inside
	client.die()
	answered(t, 409, ask(t, "POST", town.url(0, "/api/locks/simple/k"), ""))
	if lease.Context().Err() != nil {
		t.Error("the client's end ended the operation")
	}
	close(g.open)
	town.free()
}

func TestOperation_AClientThatGoesWhileItWaitsTakesNothing(t *testing.T) {
	g := newGate()
	town := newTown(t, listenInMemory, nil, server.WithOperation(g.operation()))
	town.take("a")
	client := town.send(0, "POST", "/api/locks/fair/k", "")
	town.queued(1)
	client.die()
	town.queued(0)
	town.release("a")
	select {
	case <-g.inside:
		t.Error("it was begun although its client has gone")
	case <-time.After(100 * time.Millisecond):
	}
}

// The clock has advanced and no timer has run, as after a suspension of the process.
func TestOperation_HR_C1_SeesALossAtItsFirstLook(t *testing.T) {
	_, base := serve(t, memdriver.New(), server.WithOperation(operations.Operation{
		Do: func(ctx context.Context, l *leasehold.Lease) error {
			clock.Advance(l.Remaining() + time.Second)
			if ctx.Err() == nil {
				t.Error("the first check found the operation protected")
			}
			return nil
		},
	}))
	refused(t, ask(t, "POST", base+"/api/locks/simple/r", ""), server.Unprotected)
}

func TestOperation_HR_A11_ThatExitsGivesTheLockBack(t *testing.T) {
	store := memdriver.New()
	_, base := serve(t, store, server.WithOperation(operations.Operation{
		Do: func(context.Context, *leasehold.Lease) error { runtime.Goexit(); return nil },
	}))
	for range 2 { // the second needs the lock and the slot of the first
		refused(t, ask(t, "POST", base+"/api/locks/simple/r", ""), server.Failed)
	}
	if snap, err := store.Inspect(t.Context(), "r"); err != nil || len(snap.Holders) > 0 {
		t.Errorf("%+v, %v", snap.Holders, err)
	}
}

func TestOperation_WithoutAQuorum(t *testing.T) {
	divided := acquires(memdriver.New(), func() error { return fmt.Errorf("%w: %w", driver.ErrNoQuorum, driver.ErrUnavailable) })
	_, base := serve(t, memdriver.New(), server.WithQuorum(divided), server.WithOperation(operations.Simulate(0)))
	got := ask(t, "POST", base+"/api/locks/redlock/user123", "")
	if want := `{"error":"Quorum not reached","message":"Unable to acquire lock on majority of instances"}`; got.status != 503 || got.body != want {
		t.Errorf("%d %q", got.status, got.body)
	}
	answered(t, 200, ask(t, "POST", base+"/api/locks/simple/user123", ""))
}

// TestDrain_H7_OperationsRunToTheirEnd: operations that run finish, operations that wait are
// refused, and no operation begins.
func TestDrain_H7_OperationsRunToTheirEnd(t *testing.T) {
	g := newGate()
	store := memdriver.New()
	s, base := serve(t, store, server.WithOperation(g.operation()))
	running, waiting := make(chan exchange, 1), make(chan exchange, 1)
	go func() { running <- ask(t, "POST", base+"/api/locks/fair/k", "") }()
	<-g.inside
	go func() { waiting <- ask(t, "POST", base+"/api/locks/fair/k", "") }()
	town := &town{T: t, store: store, base: [2]string{base}}
	town.queued(1)
	s.Drain()
	answers := []exchange{<-waiting, ask(t, "GET", base+"/v1/events", "")}
	for _, p := range patterns {
		answers = append(answers, ask(t, "POST", base+"/api/locks/"+p+"/other", ""))
	}
	for _, got := range answers {
		if refused(t, got, server.Draining); got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v", got, got.header)
		}
	}
	close(g.open)
	answered(t, 200, <-running)
}

// An operation that still runs when the time is up is cancelled, and gives its lock back before
// the service ends.
func TestDrain_H7_OperationsAreEndedWhenTheTimeIsUp(t *testing.T) {
	g := newGate()
	store := memdriver.New()
	s, base := serve(t, store.Join(), server.WithOperation(g.operation()))
	running := make(chan struct{})
	go func() {
		defer close(running)
		if res, err := http.Post(base+"/api/locks/simple/r", "", nil); err == nil { //nolint:noctx // the service ends
			res.Body.Close()
		}
	}()
	lease := <-g.inside
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown: %v", err)
	}
	if lease.Context().Err() == nil {
		t.Error("the operation runs on")
	}
	snap, err := store.Inspect(context.Background(), "r")
	if err != nil || len(snap.Holders) != 0 {
		t.Errorf("left: %+v, %v", snap, err)
	}
}
