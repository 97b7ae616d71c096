package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// node is one of the stores, and how it has answered so far.
type node struct {
	driver.Driver
	index  int
	name   string
	marker driver.Marker // nil if the node is not guarded

	mu         sync.Mutex
	underWay   int       // calls under way
	lastAnswer time.Time // when the last call was answered, or the oldest call under way began
	timedOut   bool      // the last call to end was not answered in time

	gates map[string]*gate // by key; guarded by mu

	repairing sync.Mutex // held during a repair
}

// gate delays an acquire while releases of the same key are under way at the node.
// Without it, a lock that was just released here would be refused by all nodes but the
// fastest.
type gate struct {
	releases int
	waiting  int
	open     chan struct{}
}

// maxGateWaiters bounds the acquires that wait at a gate. Further acquires are answered as
// if the lock were held, or fail if the node is slow.
const maxGateWaiters = 4

// errReleasing is returned while the node still has the lock and its release is under way.
var errReleasing = errors.New("it is being released")

// closeGate closes the gate of a key for a release; openGate ends that.
func (n *node) closeGate(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.gates[key]
	if g == nil {
		g = &gate{}
		n.gates[key] = g
	}
	g.releases++
}

func (n *node) openGate(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.gates[key]
	if g.releases--; g.releases > 0 {
		return
	}
	delete(n.gates, key)
	if g.open != nil {
		close(g.open)
	}
}

// passGate waits until the gate of a key is open.
func (n *node) passGate(ctx context.Context, key string) error {
	n.mu.Lock()
	g := n.gates[key]
	switch {
	case g == nil:
		n.mu.Unlock()
		return nil
	case g.waiting == maxGateWaiters:
		n.mu.Unlock()
		if n.slow() {
			return errHangs
		}
		return errReleasing
	}
	g.waiting++
	if g.open == nil {
		g.open = make(chan struct{})
	}
	open := g.open
	n.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return errHangs
	}
}

// A node that hangs must not collect one goroutine for every call until the first calls
// have timed out.
const (
	// maxUnanswered is how many calls may be under way at a node that has not answered
	// for slowAfter.
	maxUnanswered = 16
	slowAfter     = 100 * time.Millisecond
)

var (
	// errNoAnswer is the cause of a call that took too long.
	errNoAnswer = errors.New("no answer in time")
	errHangs    = fmt.Errorf("it has not answered earlier requests: %w", driver.ErrUnavailable)
	errBusy     = fmt.Errorf("an earlier request for the same lease is still under way: %w", driver.ErrUnavailable)
	errUnsure   = fmt.Errorf("it may still carry out a release of the same lease: %w", driver.ErrUnavailable)
)

// call makes one call to the node. While the node hangs, it makes one call at a time, to
// detect when the node is back, and fails further calls at once.
func call[T any](ctx context.Context, n *node, f func(context.Context) (T, error)) (value T, err error) {
	if !n.begin(false) {
		return value, errHangs
	}
	value, err = f(ctx)
	n.end(ctx, err)
	return value, err
}

// begin counts a call, unless the node hangs. It counts a call that must be made always.
func (n *node) begin(must bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	switch {
	case n.underWay == 0:
		n.lastAnswer = now
	case !must && (n.timedOut || n.underWay >= maxUnanswered && now.Sub(n.lastAnswer) > slowAfter):
		return false
	}
	n.underWay++
	return true
}

// end records the outcome of a call. A call that its caller gave up does not count for or
// against the node.
func (n *node) end(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.underWay--
	switch {
	case err == nil || ctx.Err() == nil:
		n.timedOut, n.lastAnswer = false, time.Now()
	case errors.Is(context.Cause(ctx), errNoAnswer):
		n.timedOut = true
	}
}

// slow reports whether waiting for the node is not worthwhile.
func (n *node) slow() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.timedOut || n.underWay > 0 && time.Since(n.lastAnswer) > slowAfter
}

// shape returns a request as the node gets it. A node never hands the lock over to a
// waiter, since a waiter needs a majority. So tickets are kept only for the hint that the
// lock is free.
func (n *node) shape(req driver.Request) driver.Request {
	req.Policy, req.Ordered = driver.Barging, false
	req.Guard = n.marker != nil
	return req
}

func (n *node) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", n.name, err)
}

// definite is [timing.Definite] for an error of one node, which may have refused a
// request with Guard.
func definite(err error) bool {
	return timing.Definite(err) || errors.Is(err, driver.ErrAmnesia)
}
