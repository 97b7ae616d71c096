package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// node is one of the stores, and what is known of how it answers.
type node struct {
	driver.Driver
	name   string
	marker driver.Marker // nil if it is not guarded

	mu     sync.Mutex
	flying int       // calls under way
	heard  time.Time // when the last call was answered, or the first of those under way began
	silent bool      // the last call to end was not answered in time

	gates map[string]*gate // by key; guarded by mu

	heal sync.Mutex // one at a time
}

// gate holds an acquire back while releases of the same key are under way at the
// node: whoever takes a lock again that was just released here would otherwise be
// refused by the nodes that are not the fastest.
type gate struct {
	releases int
	waiting  int
	open     chan struct{}
}

// queue bounds those who wait at a gate. To others the lock is held, unless the
// node hangs.
const queue = 4

// errShut tells that a lock is still held at a node, by one who is releasing it.
var errShut = errors.New("it is being released")

// shut closes the gate of a key for a release; unshut ends that.
func (n *node) shut(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.gates[key]
	if g == nil {
		g = &gate{}
		n.gates[key] = g
	}
	g.releases++
}

func (n *node) unshut(key string) {
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

// pass waits at the gate of a key until it is open.
func (n *node) pass(ctx context.Context, key string) error {
	n.mu.Lock()
	g := n.gates[key]
	switch {
	case g == nil:
		n.mu.Unlock()
		return nil
	case g.waiting == queue:
		n.mu.Unlock()
		if n.hushed() {
			return errHangs
		}
		return errShut
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

// A node that hangs must not collect goroutines: one for every call that is
// made as long as its first ones have not timed out.
const (
	// crowd is how many calls may be under way at a node that has not been
	// heard of for hush.
	crowd = 16
	hush  = 100 * time.Millisecond
)

var (
	// errNoAnswer is why a call ended that took too long.
	errNoAnswer = errors.New("no answer in time")
	errHangs    = fmt.Errorf("it has not answered what was asked before: %w", driver.ErrUnavailable)
	errBusy     = fmt.Errorf("an earlier request for the same lease is still under way: %w", driver.ErrUnavailable)
	errUnsure   = fmt.Errorf("it may still carry out a release of the same lease: %w", driver.ErrUnavailable)
)

// call makes one call. One that is known to hang gets a single call at a time,
// by which it is noticed when it is back; others fail at once.
func (n *node) call(ctx context.Context, f func(context.Context) error) error {
	if err := n.begin(); err != nil {
		return err
	}
	err := f(ctx)
	n.end(ctx, err)
	return err
}

// insist is call of a node that may be known to hang: for the release of what was
// asked for there and not answered, which would take effect when the node goes on.
// There are no more of those than such requests.
func (n *node) insist(ctx context.Context, f func(context.Context) error) error {
	n.mu.Lock()
	if n.flying == 0 {
		n.heard = time.Now()
	}
	n.flying++
	n.mu.Unlock()
	err := f(ctx)
	n.end(ctx, err)
	return err
}

func (n *node) begin() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	switch {
	case n.flying == 0:
		n.heard = now
	case n.silent, n.flying >= crowd && now.Sub(n.heard) > hush:
		return errHangs
	}
	n.flying++
	return nil
}

// end counts a call out. One that was given up by its caller tells nothing of the
// node.
func (n *node) end(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flying--
	switch {
	case err == nil || ctx.Err() == nil:
		n.silent, n.heard = false, time.Now()
	case errors.Is(context.Cause(ctx), errNoAnswer):
		n.silent = true
	}
}

// hushed reports whether it is not worthwhile to wait for the node.
func (n *node) hushed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent || n.flying > 0 && time.Since(n.heard) > hush
}

// shape is what a request looks like when the node gets it. Nobody is handed a
// room: a majority is taken, not given. So tickets are there for the hint that
// comes when the room is free.
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
