package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// mortal is a driver whose process can die, and whose replies can be lost.
type mortal struct {
	whole
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

// whole is a driver with the optional interfaces that all stores of the project have.
type whole interface {
	driver.Driver
	driver.Watcher
	driver.Inspector
	driver.Breaker
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
	sub, err := m.whole.Watch(func(h driver.Hint) {
		if !m.isDead() && !m.deaf.Load() {
			f(h)
		}
	})
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

// suffer applies the fault to a reply that has come.
func suffer(ctx context.Context, f fault) (driver.Reply, error) {
	if f == silent {
		<-ctx.Done()
		return driver.Reply{}, ctx.Err()
	}
	return driver.Reply{}, errLost
}

func (m *mortal) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	m.asked.Add(1)
	if !m.begin() {
		return driver.Reply{}, errDead
	}
	time.Sleep(m.lag)
	reply, err := m.whole.Acquire(ctx, req)
	m.end()
	time.Sleep(m.lag)
	if f, ok := m.next(&m.acquires); ok {
		return suffer(ctx, f)
	}
	return reply, err
}

func (m *mortal) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if !m.begin() {
		return driver.Reply{}, fmt.Errorf("%w: %w", driver.ErrInvalid, errDead) // a retry is pointless
	}
	time.Sleep(m.lag)
	reply, err := m.whole.Release(ctx, ref)
	m.end()
	time.Sleep(m.lag)
	if f, ok := m.next(&m.releases); ok {
		return suffer(ctx, f)
	}
	return reply, err
}

func (m *mortal) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	m.asked.Add(int64(len(refs)))
	if !m.begin() {
		for i := range refs {
			each(i, driver.Reply{}, errDead)
		}
		return
	}
	defer m.end()
	time.Sleep(m.lag)
	m.whole.Renew(ctx, refs, each)
}
