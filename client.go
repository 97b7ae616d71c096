package leasehold

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/keeper"
	"github.com/leasehold-go/leasehold/internal/ticket"
)

// Client takes locks in one store. It is safe for concurrent use; a program
// needs one per store.
type Client struct {
	drv     driver.Driver
	watcher driver.Watcher // nil if the store has none
	cfg     config
	keeper  *keeper.Keeper
	epoch   clock.Epoch
	// punctual is that of the driver.
	punctual punctuality

	deadlines deadlines

	closing chan struct{} // closed by Close

	mu      sync.Mutex
	idle    *sync.Cond // signalled when busy falls to 0
	busy    int        // calls and background work under way
	closed  bool
	waiters map[string]*waiter
	lines   ticket.Lines[*waiter]
	holds   map[string]*hold
	sub     driver.Subscription
	opening bool // a subscription is being opened

	counts  counters
	classes classes
}

// New returns a client of a store. It takes charge of the driver: Close closes
// it. The options are the defaults of the client's locks.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	if v := reflect.ValueOf(d); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("leasehold: nil driver: %w", ErrInvalid)
	}
	cfg, err := defaults().with(opts)
	if err != nil {
		return nil, fmt.Errorf("leasehold: %w", err)
	}
	c := &Client{
		drv: d, cfg: cfg, keeper: keeper.New(d.Renew, clock.Now),
		closing: make(chan struct{}),
		waiters: make(map[string]*waiter), holds: make(map[string]*hold),
	}
	c.epoch = clock.NewEpoch(c.now())
	c.deadlines.c = c
	c.idle = sync.NewCond(&c.mu)
	c.watcher, _ = d.(driver.Watcher)
	c.punctual = punctualityOf(d)
	return c, nil
}

func (c *Client) now() time.Time { return clock.Now() }

// Close ends the client: waiters get ErrClosed, leases that are held are
// released, at most for their release timeout, and their contexts end with
// ErrClosed. When it returns nothing of the client runs any more, and the
// driver is closed. Further calls do nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)
	holds := make([]*hold, 0, len(c.holds))
	for _, h := range c.holds {
		holds = append(holds, h)
	}
	c.mu.Unlock()

	c.stopAll(holds)
	c.mu.Lock()
	for c.busy > 0 {
		c.idle.Wait()
	}
	sub := c.sub
	c.mu.Unlock()
	c.keeper.Close()
	if sub != nil {
		_ = sub.Close() // its connection is of no more use
	}
	return c.drv.Close()
}

// stoppers is how many leases are given back at a time when a client closes.
const stoppers = 64

// stopAll ends all leases at once and gives them back, some at a time: a store
// that does not answer costs one release timeout, not one per lease.
func (c *Client) stopAll(holds []*hold) {
	var limit time.Duration
	holds = slices.DeleteFunc(holds, func(h *hold) bool {
		limit = max(limit, h.cfg.releaseTimeout)
		return !h.quit(ErrClosed)
	})
	end := c.now().Add(limit)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(holds), stoppers) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(len(holds)); i = next.Add(1) {
				h := holds[i-1]
				h.giveUp(ErrClosed, min(h.cfg.releaseTimeout, end.Sub(c.now())))
			}
		})
	}
	wg.Wait()
}

// background runs f in a goroutine that Close waits for.
func (c *Client) background(f func()) {
	c.enter()
	go func() {
		defer c.leave()
		f()
	}()
}

// enter counts a call that Close waits for.
func (c *Client) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
}

func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left()
}

// left ends what busy counts. The caller holds mu.
func (c *Client) left() {
	if c.busy--; c.busy == 0 {
		c.idle.Broadcast()
	}
}

// begin starts a call that Close waits for, and registers a waiter, if any, so
// that hints find it.
func (c *Client) begin(w *waiter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.busy++
	if w != nil {
		c.waiters[w.req.ID] = w
	}
	return nil
}

// finish ends what begin started.
func (c *Client) finish(w *waiter) {
	if w != nil && w.waited {
		c.keeper.Remove(&w.task)
	}
	c.mu.Lock()
	if w != nil {
		delete(c.waiters, w.req.ID)
	}
	c.left()
	c.mu.Unlock()
	if w != nil && !w.waited {
		w.recycle()
	}
}

// hold takes charge of a grant, or gives it back if the client was closed in
// the meantime.
func (c *Client) hold(ctx context.Context, cfg *config, req *driver.Request, g grant, t *trail) (*hold, error) {
	h := newHold(c, cfg, req, g, t)
	if !c.keep(h, g.handed) {
		c.abandon(ctx, cfg, req, g.unanswered)
		return nil, ErrClosed
	}
	c.counts.granted.Add(1)
	h.start(g)
	return h, nil
}

// keep registers a hold, and reports false if the client was closed. The hold
// cannot end before observers know that it began.
func (c *Client) keep(h *hold, handed time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.holds[h.id] = h
	}
	c.mu.Unlock()
	if !closed {
		h.trail.acquired(h, handed)
	}
	return !closed
}

// forget drops a hold that has ended.
func (c *Client) forget(h *hold, cause error) {
	c.keeper.Remove(&h.task)
	c.mu.Lock()
	delete(c.holds, h.id)
	c.mu.Unlock()
	c.counts.end(cause)
	h.trail.ended(h, cause)
	if errors.Is(cause, ErrLost) {
		h.cfg.log.Error("leasehold: lease lost", "key", h.key, "lease", h.id, "token", h.token, "cause", cause)
	}
}

// release releases ref until it is answered or limit has passed. parent is not
// the caller's context, which usually has ended, but may have its values.
// repeated tells that a try before the last was not answered, so that it may
// have had its effect.
func (c *Client) release(parent context.Context, ref driver.Ref, limit time.Duration) (reply driver.Reply, repeated bool, err error) {
	left := max(limit, 0)
	end := c.now().Add(left)
	for attempt := 1; ; attempt++ {
		ctx, cancel := c.bound(parent, max(left/3, min(left, 100*time.Millisecond)))
		reply, err = c.drv.Release(ctx, ref)
		cancel()
		if err == nil || ticket.Final(err) {
			return reply, repeated, err
		}
		repeated = repeated || !definite(err)
		pause := backoff(attempt)
		if c.now().Add(pause).After(end) {
			return reply, repeated, err
		}
		time.Sleep(pause)
		left = max(end.Sub(c.now()), 0)
	}
}

// abandon undoes in the background what a request may have left behind.
// Whoever asked has gone, so it has a time limit of its own.
func (c *Client) abandon(ctx context.Context, cfg *config, req *driver.Request, unanswered bool) {
	ref := driver.Ref{Key: req.Key, ID: req.ID}
	if unanswered {
		ref.Forbid = forbid(req.TTL)
	}
	ctx = context.WithoutCancel(ctx)
	c.background(func() {
		if _, _, err := c.release(ctx, ref, cfg.releaseTimeout); err != nil {
			cfg.log.Warn("leasehold: abandoned request not undone", "key", ref.Key, "lease", ref.ID, "error", err)
		}
	})
}

// backoff is the pause before the next try of something that was not answered.
func backoff(attempt int) time.Duration {
	return min(10*time.Millisecond<<min(attempt, 6), 500*time.Millisecond)
}

// sleep is [sleep] that ends, too, when the client is closed.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.closing:
	}
	return false
}

func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// sleep reports whether it slept for d; false means that ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
