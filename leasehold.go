// Package leasehold gives locks that work across machines.
//
// A lock here is a lease: it is granted for a time, renewed while its holder
// lives, and its end is always noticed.
//
//	client, err := leasehold.New(store)
//	…
//	lease, err := client.Mutex("orders/42").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Release()
//	return charge(lease.Context(), lease.Token())
//
// # Promises
//
// Exclusion (P1): while a lease's context is live, no other lease that
// conflicts with it has a live context. This assumes that the store keeps acknowledged
// writes for one TTL, and that the rates of clocks differ by less than the drift factor.
// The clocks of different machines need not agree.
//
// Loss (P2, P3): the holder learns of a loss at the latest when its local
// deadline passes, counted from before the request that the store confirmed
// last; also if the store hangs, the network is cut, or the process was stopped
// and woken. A failed renewal is repeated until the deadline.
//
// Fencing (P4): every grant carries a token greater than every token given
// before for that key. A resource that refuses smaller tokens is safe from a
// holder that does not notice its loss.
//
// Waiting (P5, P6): waiters are served in the order of their arrival at the store, and
// woken by it. If all wake-ups are lost, waiters ask on their own: the head of the queue
// when the holder's lease ends, the first waiter of each client every second, each waiter at
// least every 5 seconds, and every half second after a missed wake-up. A waiter that has died
// delays the next waiters by at most one second if the lock was handed to it; by two seconds
// if it is in the queue before a waiter that could be admitted, and by one more if its
// successor has died too; and by four seconds if the store cannot wake it. Such a waiter takes
// the lock by asking, so the store notices its death only when its ticket expires.
//
// Exactly once (P7): every acquisition has an id. A request without an answer is repeated
// with the same id, and has the effect and the answer of one request.
//
// Unknown (P8): when the store did not answer, the error matches ErrUnknown, and the client
// cleans up in the background.
//
// Cleanup (P9): after a cancellation, a timeout, a crash or a release, every key in the
// store expires, and no goroutine stays.
//
// Not given away early (P10): the lock passes to another client only after
// Release, after a break, or after the lease has expired. The end of the context
// that Lock was given ends the lease's context and stops the renewal, so that the
// work can wind down within one time to live.
//
// Not promised: a lease cannot stop a holder that ignores its context. Asynchronous
// replication can lose a grant when a server fails over.
package leasehold

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/line"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Client takes locks in one store. It is safe for concurrent use; a program
// needs one per store.
type Client struct {
	session *session.Session
	limited bool // the store refuses some kinds of requests
	cfg     config
	counts  counters
	classes classes
	lines   *line.Lines // see WithLocalHandover
	ping    string      // key of Ping
}

// New returns a client of a store. It takes charge of the driver: Close closes
// it. The options are the defaults of the client's locks, but for
// [WithReentrantOwner], which is one lock's. If an option is refused the error
// matches ErrInvalid, and the caller keeps the driver and closes it.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	if v := reflect.ValueOf(d); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("leasehold: nil driver: %w", ErrInvalid)
	}
	cfg, err := defaults().with(opts)
	if err == nil && cfg.reentrantOwner != "" {
		err = fmt.Errorf("reentrant owner %q of a client: it is an option of one lock: %w", cfg.reentrantOwner, ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("leasehold: %w", err)
	}
	cfg.ownPolicy = false // from here on it is a default
	c := &Client{session: session.New(d, cfg.Log, cfg.outage), cfg: cfg, ping: "leasehold/ping/" + rand.Text()}
	_, c.limited = driver.As[driver.Limited](d)
	queue := driver.Supports(d, driver.Request{Mode: driver.Exclusive, Ordered: true, Weight: 1}) == nil
	c.lines = line.New(c.session, queue)
	return c, nil
}

func (c *Client) now() time.Time { return c.session.Now() }

// Close ends the client: waiters get ErrClosed, leases that are held are
// released, at most for their release timeout, and their contexts end with
// ErrClosed. When Close returns, all goroutines of the client have ended and the driver is
// closed. Further calls have no effect.
//
// The error contains the number of leases that were not given back, and wraps the error of
// [Lease.Release] for one of them. Usually that matches [ErrUnknown] or
// [ErrUnavailable], and the store keeps the lease until its time to live is over. An
// error of the driver's own Close is returned as well. Close returns no error for a lease
// that it finds lost.
func (c *Client) Close() error {
	if err := c.session.Close(); err != nil {
		return fmt.Errorf("leasehold: close: %w", err)
	}
	return nil
}

// Ping asks the store whether locks can be taken, for start-up and health checks. Like /readyz
// of the service, it takes a lock of its own, "leasehold/ping/" and a random name, and gives it
// back. Observers and Stats do not count it. ctx bounds it, as does the time limit of the store.
//
// The error matches [ErrUnavailable] if the store does not answer, cannot be written to or
// refuses the client, which over HTTP needs the right to acquire that name. It also matches
// [ErrNoQuorum] if a majority does not answer, and [ErrNotReplicated] if replicas do not
// acknowledge. It matches [ErrClosed] after Close, and the cause of ctx if that was cancelled.
func (c *Client) Ping(ctx context.Context) error {
	if err := session.Ping(ctx, c.session.Driver(), c.ping, c.cfg.name); err != nil {
		return fmt.Errorf("leasehold: ping: %w", c.readError(ctx, err))
	}
	return nil
}

// Stats contains figures for health checks and metrics. Counts are since [New].
type Stats struct {
	// Held is how many leases are held now. A lease that was re-entered under its
	// context counts once.
	Held int
	// Waiting is how many calls of Lock wait now for a lock that is held: in the store's
	// queue, by polling a store without a queue, or between the attempts of [WithRetry]. A
	// call that the store has not answered yet does not count.
	Waiting int
	// Granted counts leases, Refused the calls that ended unserved.
	Granted, Refused int64
	// Released counts leases that were given back, or left by Detach. Lost counts leases that
	// were lost, also if that was discovered at their release. Observers count the same way.
	Released, Lost int64
	// Renewed and Failed count the renewals that the store did and did not confirm. A
	// renewal of a lease that is gone has failed.
	Renewed, Failed int64
}

// Stats returns the current figures.
func (c *Client) Stats() Stats {
	n := &c.counts
	return Stats{
		Held: c.session.Held(), Waiting: int(n.waiting.Load()),
		Granted: n.granted.Load(), Refused: n.refused.Load(),
		Released: n.released.Load(), Lost: n.lost.Load(),
		Renewed: n.renewed.Load(), Failed: n.failed.Load(),
	}
}

type counters struct {
	waiting                                           atomic.Int64 // now
	granted, refused, lost, released, renewed, failed atomic.Int64
}

// gaveBack counts a lease that was live when it was given back, by the outcome.
func (n *counters) gaveBack(err error) {
	if errors.Is(err, ErrLost) {
		n.lost.Add(1)
	} else {
		n.released.Add(1)
	}
}

// Locker is any single lock: a [*Mutex], a [*RWMutex], which stands for its write side,
// a [*RLocker], a [*Semaphore], which stands for one place, or [*Places]. Code that is
// given a Locker can be tested with a lock of package memdriver, or with one of its own.
type Locker = LockerOf[*Lease]

// LockerOf is any lock with leases of type L: a [Locker] has leases of type *[Lease], and a
// [*Multi], which [All] returns, has leases of type *[MultiLease].
type LockerOf[L AnyLease] interface {
	// Lock waits for the lock; see [Mutex.Lock].
	Lock(ctx context.Context) (L, error)
	// TryLock asks once; see [Mutex.TryLock].
	TryLock(ctx context.Context) (L, error)
}

// AnyLease is a *[Lease], a *[MultiLease], or a substitute in a test.
type AnyLease interface {
	// Context ends with the lease; see [Lease.Context].
	Context() context.Context
	// Release gives the lease back; see [Lease.Release].
	Release() error
}

// Do waits for lock, runs fn with the lease's context, and releases. It returns the
// error of fn joined with that of the release, so that it matches ErrLost if the work
// was not protected to its end: if the lease was lost, or ctx ended, while fn ran. It
// matches ErrUnknown, and not ErrUnavailable, if the store refuses the release: fn has
// run. If fn panics the lock is released. [FromContext] returns the lease and its token to fn,
// and [MultiFromContext] does so for the leases of [All].
func Do[L AnyLease](ctx context.Context, lock LockerOf[L], fn func(ctx context.Context) error) error {
	lease, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	return run(lease, fn)
}

// TryDo is Do if the lock is free. If it is held, TryDo returns false and no error.
func TryDo[L AnyLease](ctx context.Context, lock LockerOf[L], fn func(ctx context.Context) error) (ran bool, err error) {
	lease, err := lock.TryLock(ctx)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, run(lease, fn)
}

func run(lease AnyLease, fn func(ctx context.Context) error) (err error) {
	defer func() { err = withRelease(err, lease.Release()) }()
	return fn(lease.Context())
}

// withRelease joins the error of work under a lease with the error of its release, without
// repeating a common cause.
func withRelease(err, released error) error {
	switch released = ofCall(released); {
	case err != nil && errors.Is(released, err): // err is the context's cause; released also names the lock
		return released
	case errors.Is(released, ErrLost) && errors.Is(err, ErrLost):
		return err
	}
	return oneline.Join(err, released)
}

// ofCall returns the error of a release within a call that has done more than release. If the
// store refuses the release, it still has the lease, so the error must not match ErrUnavailable:
// the call had an effect. A lost lease is not given back: the store had refused to renew it.
func ofCall(released error) error {
	switch {
	case !errors.Is(released, ErrUnavailable):
		return released
	case errors.Is(released, ErrLost):
		return timing.Uncertain(released)
	}
	return fmt.Errorf("%w: %w", timing.Uncertain(released), ErrUnknown)
}

// Acquire waits for the mutex of key and returns the lease's context and its
// release, in the shape of [context.WithDeadline]. The context ends when ctx or the
// lease ends; [context.Cause] returns why. release gives the lease back like
// [Lease.Release]. A ttl of 0 is the client's default.
func (c *Client) Acquire(ctx context.Context, key string, ttl time.Duration) (leaseCtx context.Context, release func() error, err error) {
	var opts []Option
	if ttl != 0 {
		opts = append(opts, WithTTL(ttl))
	}
	lease, err := c.Mutex(key, opts...).Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	return lease.Context(), lease.Release, nil
}
