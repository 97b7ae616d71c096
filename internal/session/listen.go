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

// listener hears the hints of a store for one process, by one subscription. It is
// safe for concurrent use.
type listener struct {
	watcher driver.Watcher // nil if the store has none
	hear    func(driver.Hint)
	log     *slog.Logger

	mu      sync.Mutex
	closed  bool
	sub     driver.Subscription
	opening *opening // of sub; nil before it was asked for
}

// maxOpening is how long those of a burst wait for an address.
const maxOpening = 250 * time.Millisecond

// opening is a subscription on its way.
type opening struct {
	began time.Time
	once  sync.Once
	done  chan struct{} // closed when it has an address, or has failed
}

func (o *opening) end() { o.once.Do(func() { close(o.done) }) }

// newListener returns a listener that calls hear for each hint once it is opened,
// one at a time. A resync comes first, when there is an address.
func newListener(d driver.Driver, log *slog.Logger, hear func(driver.Hint)) *listener {
	l := &listener{hear: hear, log: log}
	l.watcher, _ = driver.As[driver.Watcher](d)
	return l
}

// hears reports whether the store can deliver hints at all.
func (l *listener) hears() bool { return l.watcher != nil }

// start starts to listen in a goroutine that run starts, unless that has been done.
// Whoever waits before it is listening gets the lock by asking.
func (l *listener) start(run func(func())) {
	if o := l.begin(); o != nil {
		run(func() {
			if err := l.open(o); err != nil {
				l.log.Warn("leasehold: no wake-ups, waiting by asking", "error", err)
			}
		})
	}
}

// errOpening tells that somebody else is about to open the subscription.
var errOpening = errors.New("a subscription is on its way")

// listen is start for whoever does not wait, in this goroutine. It returns why nothing
// is heard, or not yet.
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

// begin returns a subscription for the caller to open, nil if there is nothing to do.
func (l *listener) begin() *opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watcher == nil || l.opening != nil || l.closed {
		return nil
	}
	l.opening = &opening{began: clock.Now(), done: make(chan struct{})}
	return l.opening
}

// open opens the subscription. A store may have the address only later, and then
// has all ask.
func (l *listener) open(o *opening) error {
	sub, err := l.watcher.Watch(l.hint)
	l.mu.Lock()
	closed := l.closed
	if err == nil {
		l.sub = sub
	} else {
		l.opening = nil // who waits next tries again
	}
	l.mu.Unlock()
	if err != nil {
		o.end()
	}
	if err == nil && closed {
		_ = sub.Close() // its connection is of no more use
		return nil
	}
	l.hint(driver.Hint{Kind: driver.HintResync})
	return err
}

// close ends the subscription, also one on its way.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	sub := l.sub
	l.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // its connection is of no more use
	}
}

func (l *listener) hint(h driver.Hint) {
	if h.Kind == driver.HintResync {
		l.opened()
	}
	l.hear(h)
}

// opened notes that there is an address by now, if there is.
func (l *listener) opened() {
	l.mu.Lock()
	o := l.opening
	l.mu.Unlock()
	if o != nil && l.address() != "" {
		o.end()
	}
}

// await waits a moment for a subscription on its way, so that not all of a burst have
// to tell their address by another request.
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

// address is where hints are heard; empty while they are not.
func (l *listener) address() string {
	l.mu.Lock()
	sub := l.sub
	l.mu.Unlock()
	if sub == nil {
		return ""
	}
	return sub.Address()
}
