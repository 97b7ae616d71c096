// Package doctor finds causes that make locks unsafe. It uses a lock of the store, asks a store
// that is a [driver.Checker], and compares stores that must fail independently.
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Examine examines a store for leases of ttl. It takes a lock with a random name, and gives it
// back. An error means that the store could not be examined; it matches [driver.ErrUnavailable]
// if the store did not answer.
func Examine(ctx context.Context, d driver.Driver, ttl time.Duration) (driver.Report, error) {
	e := &examination{d: d, ttl: ttl, key: "leasehold-doctor/" + rand.Text()}
	checker, checked := driver.As[driver.Checker](d)
	if checked {
		var err error
		if e.Report, err = checker.Check(ctx); err != nil {
			return e.Report, err
		}
	}
	defer e.giveBack("a")
	if err := e.take(ctx); err != nil {
		if !checked {
			return e.Report, err
		}
		e.Found(driver.Unsafe, "lock", "a lock cannot be taken: "+err.Error(), "", "")
		return e.Report, nil
	}
	e.renewals(ctx)
	e.wakeUp(ctx)
	return e.Report, nil
}

// examination is the use of one lock.
type examination struct {
	Checkup
	d   driver.Driver
	ttl time.Duration
	key string
}

func (e *examination) request(id string) driver.Request {
	return driver.Request{
		Key: e.key, ID: id, Owner: "leasehold doctor", Since: time.Now(), Policy: driver.Barging,
		TTL: e.ttl, ConfirmWindow: time.Second,
	}
}

// giveBack releases the lock, also after the end of the caller's context.
func (e *examination) giveBack(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = e.d.Release(ctx, driver.Ref{Key: e.key, ID: id}) // otherwise it expires
}

// take takes the lock twice under one id, which has to be the same lease.
func (e *examination) take(ctx context.Context) error {
	first, err := e.d.Acquire(ctx, e.request("a"))
	if err != nil {
		return err
	}
	again, err := e.d.Acquire(ctx, e.request("a"))
	if err != nil {
		return err
	}
	e.Judge("lock",
		If(first.State != driver.Granted || again.State != driver.Granted || first.Token != again.Token, driver.Unsafe, "a request that was repeated was not recognised",
			"an answer that is lost costs the lock", "remove the component in between that changes or caches requests"),
		If(first.Token == 0, driver.Warning, "leases have no fencing tokens", "a resource cannot refuse the writes of a holder that has lost its lease", ""),
		Good("can be taken, and comes with a fencing token"))
	return nil
}

// samples is how many renewals are timed.
const samples = 15

// renewals compares how long they take with how long a lease lasts: the first is
// due after a third of it, and later tries follow within a twelfth each.
func (e *examination) renewals(ctx context.Context) {
	var took []time.Duration
	for range samples {
		start := time.Now()
		if err := e.renew(ctx); err != nil {
			e.Found(driver.Unsafe, "round trip", "a renewal failed: "+err.Error(), "leases cannot be kept", "")
			return
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	what := fmt.Sprintf("a renewal takes %v, %v at worst, and a lease lasts %v", round(median), round(worst), e.ttl)
	const remedy = "take a longer TTL, or a store that is nearer or less busy"
	e.Judge("round trip",
		If(worst > e.ttl/3, driver.Unsafe, what, "leases are over before they are renewed", remedy),
		If(worst > e.ttl/20, driver.Warning, what, "a few slow renewals lose a lease", remedy),
		Good(what))
}

func (e *examination) renew(ctx context.Context) (err error) {
	refs := []driver.Ref{{Key: e.key, ID: "a", TTL: e.ttl}}
	e.d.Renew(ctx, refs, func(_ int, reply driver.Reply, failed error) {
		if err = failed; err == nil && reply.State != driver.Granted {
			err = errors.New("the store does not know the lease any more")
		}
	})
	return err
}

// Bounds of waits.
const (
	subscribed = 3 * time.Second
	woken      = 2 * time.Second
)

// wakeUp checks that a release wakes a waiter. It ends the lease.
func (e *examination) wakeUp(ctx context.Context) {
	watcher, ok := driver.As[driver.Watcher](e.d)
	req := e.request("b")
	if !ok || driver.Supports(e.d, req) != nil {
		return
	}
	hints := make(chan driver.Hint, 1)
	sub, err := watcher.Watch(func(h driver.Hint) {
		if h.ID == req.ID {
			select {
			case hints <- h:
			default:
			}
		}
	})
	if err == nil {
		defer sub.Close()
		req.HintAddress = e.address(ctx, sub)
	}
	if req.HintAddress == "" {
		e.deaf("no subscription is possible")
		return
	}
	req.TicketTTL = 10 * time.Second
	defer e.giveBack(req.ID)
	if reply, err := e.d.Acquire(ctx, req); err != nil || reply.State != driver.Queued {
		return // without a queue there are no wake-ups
	}
	start := time.Now()
	e.giveBack("a")
	select {
	case <-hints:
		e.Judge("wake-up", Good(fmt.Sprintf("a waiter is woken %v after a release", round(time.Since(start)))))
	case <-time.After(woken):
		e.deaf("no wake-up arrived")
	case <-ctx.Done():
	}
}

func (e *examination) address(ctx context.Context, sub driver.Subscription) string {
	ctx, cancel := context.WithTimeout(ctx, subscribed)
	defer cancel()
	for sub.Address() == "" {
		if !timing.Sleep(ctx, 10*time.Millisecond) {
			return ""
		}
	}
	return sub.Address()
}

func (e *examination) deaf(what string) {
	e.Found(driver.Warning, "wake-up", what, "waiters ask twice a second instead",
		"on Redis, give the user +@pubsub and &prefix*; on PostgreSQL behind a pooler, name the server with listen=; by HTTP, let no proxy buffer /v1/events; "+
			"in a directory, raise the limit of file notifications")
}

// round makes a duration readable: two digits or so.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(10 * time.Microsecond)
	}
}
