package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// mortal is a driver with a process that can die, and with replies that can be lost.
type mortal struct {
	*intercept.Driver
	store driver.Driver
	lag   time.Duration // of a message to the store, and of an answer
	asked atomic.Int64  // requests for leases and renewals
	deaf  atomic.Bool   // hints do not arrive

	mu       sync.Mutex
	dead     bool
	calls    int           // of the store, under way
	quiet    chan struct{} // closed when no call is under way; nil if die does not wait for that
	acquires []fault       // of the next acquires
	releases []fault       // of the next releases
	sub      driver.Subscription
}

func newMortal(store driver.Driver, lag time.Duration) *mortal {
	m := &mortal{store: store, lag: lag}
	m.Driver = intercept.New(store, m.through)
	m.Hint = func(h driver.Hint, hear func(driver.Hint)) {
		if !m.isDead() && !m.deaf.Load() {
			hear(h)
		}
	}
	return m
}

// fault is a failure of a request that the store serves.
type fault int

const (
	lost   fault = iota // the reply does not arrive
	silent              // no reply until the caller gives up
)

var (
	errLost = errors.New("reply lost")
	errDead = fmt.Errorf("%w: the process is dead", driver.ErrUnavailable)
)

// Watch implements [driver.Watcher]. It delivers no hints after the death, nor while deaf.
func (m *mortal) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	sub, err := m.Driver.Watch(f)
	if err == nil {
		m.mu.Lock()
		m.sub = sub
		m.mu.Unlock()
	}
	return sub, err
}

// die stops all requests to the store from now on, as SIGKILL does. It waits for requests on
// their way, unless the store hangs: on a busy machine they may arrive much later, and accept a
// lock that is handed to the dead process.
func (m *mortal) die() {
	m.mu.Lock()
	m.dead = true
	sub, quiet := m.sub, make(chan struct{})
	if m.quiet = quiet; m.calls == 0 {
		close(quiet)
	}
	m.mu.Unlock()
	if sub != nil {
		_ = sub.Close()
	}
	select {
	case <-quiet:
	case <-time.After(window):
	}
}

// begin counts a call of the store, unless the process is dead.
func (m *mortal) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return false
	}
	m.calls++
	return true
}

// end ends a call that begin has counted.
func (m *mortal) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls--; m.calls == 0 && m.quiet != nil {
		close(m.quiet)
	}
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// next takes the fault of the next request.
func (m *mortal) next(faults *[]fault) (f fault, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(*faults) == 0 {
		return 0, false
	}
	f = (*faults)[0]
	*faults = (*faults)[1:]
	return f, true
}

// through sends a message, unless the process is dead, and applies a fault to the reply.
func (m *mortal) through(ctx context.Context, msg *intercept.Message, send func(context.Context) error) error {
	dead, faults := errDead, new([]fault)
	switch msg.Verb {
	case intercept.Acquire:
		m.asked.Add(1)
		faults = &m.acquires
	case intercept.Renew:
		m.asked.Add(int64(len(msg.Refs)))
	case intercept.Release:
		dead = fmt.Errorf("%w: %w", driver.ErrInvalid, errDead) // a retry is pointless
		faults = &m.releases
	default:
		return send(ctx)
	}
	if !m.begin() {
		return dead
	}
	time.Sleep(m.lag)
	err := send(ctx)
	m.end()
	time.Sleep(m.lag)
	switch f, ok := m.next(faults); {
	case ok && f == silent:
		<-ctx.Done()
		return ctx.Err()
	case ok:
		return errLost
	}
	return err
}
