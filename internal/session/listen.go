package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// listener receives the hints of a store for one process, by one subscription. It is
// safe for concurrent use.
type listener struct {
	watcher driver.Watcher // nil if the store sends no hints
	hear    func(driver.Hint)
	log     *slog.Logger

	mu      sync.Mutex
	closed  bool
	sub     driver.Subscription
	opening *opening // the opening of sub; nil before it was requested
}

// maxOpening bounds how long requests wait for the address of an opening subscription.
const maxOpening = 250 * time.Millisecond

// opening is a subscription that is being opened.
type opening struct {
	began time.Time
	once  sync.Once
	done  chan struct{} // closed when it has an address, or has failed
}

func (o *opening) end() { o.once.Do(func() { close(o.done) }) }

// newListener returns a listener that, once opened, calls hear for each hint, one at a
// time. The first hint is a resync, when there is an address.
func newListener(d driver.Driver, log *slog.Logger, hear func(driver.Hint)) *listener {
	l := &listener{hear: hear, log: log}
	l.watcher, _ = driver.As[driver.Watcher](d)
	return l
}

// hears reports whether the store can deliver hints.
func (l *listener) hears() bool { return l.watcher != nil }

// start opens the subscription in a goroutine started by run, unless that was done
// before. Until it is open, waiters poll.
func (l *listener) start(run func(func())) {
	if o := l.begin(); o != nil {
		run(func() {
			if err := l.open(o); err != nil {
				l.log.Warn("leasehold: no wake-up hints: waiters poll", "error", err)
			}
		})
	}
}

// errOpening is returned while another goroutine opens the subscription.
var errOpening = errors.New("the subscription is being opened")

// listen opens the subscription in this goroutine. It returns why hints do not arrive
// yet, or nil.
func (l *listener) listen() error {
	if o := l.begin(); o != nil {
		return l.open(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub == nil {
		return errOpening
	}
	return nil
}

// begin returns an opening for the caller to complete, or nil if none is needed.
func (l *listener) begin() *opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watcher == nil || l.opening != nil || l.closed {
		return nil
	}
	l.opening = &opening{began: clock.Now(), done: make(chan struct{})}
	return l.opening
}

// open opens the subscription, and makes all waiters ask again with the new address. A
// store that gets its address later sends a resync then.
func (l *listener) open(o *opening) error {
	sub, err := l.watcher.Watch(l.hint)
	l.mu.Lock()
	closed := l.closed
	if err == nil {
		l.sub = sub
	} else {
		l.opening = nil // the next waiter tries again
	}
	l.mu.Unlock()
	if err != nil {
		o.end()
	}
	if err == nil && closed {
		_ = sub.Close() // the subscription is not needed, so its error does not matter
		return nil
	}
	l.hint(driver.Hint{Kind: driver.HintResync})
	return err
}

// close closes the subscription. One that is being opened is closed by open.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	sub := l.sub
	l.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // the subscription is not needed, so its error does not matter
	}
}

func (l *listener) hint(h driver.Hint) {
	if h.Kind == driver.HintResync {
		l.opened()
	}
	l.hear(h)
}

// opened wakes await if the subscription has an address.
func (l *listener) opened() {
	l.mu.Lock()
	o := l.opening
	l.mu.Unlock()
	if o != nil && l.address() != "" {
		o.end()
	}
}

// await waits briefly for a subscription that is being opened, so that a burst of
// requests carries the address and needs no second request to add it.
func (l *listener) await(ctx context.Context) {
	l.mu.Lock()
	o := l.opening
	l.mu.Unlock()
	if o == nil {
		return
	}
	left := maxOpening - clock.Now().Sub(o.began)
	if left <= 0 {
		return
	}
	late := time.NewTimer(left)
	defer late.Stop()
	select {
	case <-o.done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// address returns where hints are delivered, or "" while there is no address.
func (l *listener) address() string {
	l.mu.Lock()
	sub := l.sub
	l.mu.Unlock()
	if sub == nil {
		return ""
	}
	return sub.Address()
}
