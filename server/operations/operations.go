// Package operations executes work under locks for clients that cannot keep a lease
// alive themselves.
package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Operation is the work that the service does under a lock when it executes it. It belongs
// to the service: it goes on if the client disconnects.
type Operation struct {
	// Do does the work. ctx ends with the lease, and when the service ends; the
	// lock is kept until Do returns.
	Do func(ctx context.Context, lease *leasehold.Lease) error
	// Length is how long the work takes, if known in advance. Answers contain it, and the
	// lease of a simple lock lasts that long without a renewal. 0 means unknown: answers
	// contain the measured time.
	Length time.Duration
}

// Simulate returns an operation that only waits for d.
func Simulate(d time.Duration) Operation {
	return Operation{Length: d, Do: func(ctx context.Context, _ *leasehold.Lease) error {
		timing.Sleep(ctx, d)
		return context.Cause(ctx)
	}}
}

// Config configures a Runner.
type Config struct {
	Store driver.Driver
	// Quorum is for the pattern redlock. Nil means the store.
	Quorum    driver.Driver
	Operation Operation
	// TTL is the time to live of leases that are renewed. Wait is how long the pattern fair waits.
	TTL, Wait time.Duration
	// StoreTimeout bounds a call to a store.
	StoreTimeout time.Duration
	// Most bounds the operations that run or wait at one time.
	Most int
	Log  *slog.Logger
	// Serving ends when no more operations may begin.
	Serving context.Context
}

// Runner executes an operation. It is safe for concurrent use.
type Runner struct {
	cfg     Config
	client  *leasehold.Client
	redlock *leasehold.Client // of the quorum, or the same as client without a quorum

	ctx    context.Context // ends when the running operations have to end
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when the last of running ends
}

// New returns a runner, which owns the stores and closes them.
func New(cfg Config) (r *Runner, err error) {
	r = &Runner{cfg: cfg}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	opts := []leasehold.Option{
		leasehold.WithLogger(cfg.Log), leasehold.WithMaxOutage(cfg.StoreTimeout), leasehold.WithReleaseTimeout(cfg.StoreTimeout),
	}
	if r.client, err = leasehold.New(cfg.Store, opts...); err != nil {
		return nil, err
	}
	if r.redlock = r.client; cfg.Quorum != nil {
		r.redlock, err = leasehold.New(cfg.Quorum, opts...)
	}
	return r, err
}

// Wait returns when no operation runs, or with the error of ctx.
func (r *Runner) Wait(ctx context.Context) error {
	r.mu.Lock()
	running, idle := r.running, r.idle
	r.mu.Unlock()
	if running == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel ends the running operations. No operation begins after that.
func (r *Runner) Cancel() { r.cancel(errDraining) }

// Close closes the stores.
func (r *Runner) Close() error {
	if r.redlock == r.client {
		return r.client.Close()
	}
	return oneline.Join(r.redlock.Close(), r.client.Close())
}

// Execute runs the operation under the lock of a key, and returns how long it took. It waits
// for the lock only while the client is connected. A running operation goes on if the client
// disconnects.
func (r *Runner) Execute(client context.Context, key string, p *Pattern) (time.Duration, error) {
	if r.cfg.Serving.Err() != nil {
		return 0, errDraining
	}
	if err := r.begin(); err != nil {
		return 0, err
	}
	runs := false
	defer func() {
		if !runs {
			r.end() // also if the store has panicked
		}
	}()
	began := time.Now()
	lease, done, err := r.takeFor(client, key, p)
	if err != nil {
		return 0, err
	}
	ran := make(chan error, 1)
	runs = true
	go func() {
		err := errExited
		defer func() {
			done()
			r.end() // before the answer, so that the next request finds the place free
			ran <- err
		}()
		err = r.run(p, lease)
	}()
	select {
	case err = <-ran:
	case <-client.Done():
		return 0, context.Cause(client) // the operation goes on
	}
	if err != nil {
		return 0, err
	}
	if length := r.cfg.Operation.Length; wire.MillisOf(length) > 0 {
		return length, nil
	}
	return time.Since(began), nil
}

// begin counts an operation, or returns an error if it may not begin.
func (r *Runner) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return errDraining
	}
	if r.running == r.cfg.Most {
		return &refusal{"too-many-waiters", fmt.Sprintf("%d operations run already", r.cfg.Most)}
	}
	if r.running == 0 {
		r.idle = make(chan struct{})
	}
	r.running++
	return nil
}

func (r *Runner) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running--; r.running == 0 {
		close(r.idle)
	}
}

// takeFor takes the lock while the client waits and the service does not drain.
// The lease does not end with either: it lasts until the operation has ended. Then done must
// be called.
func (r *Runner) takeFor(client context.Context, name string, p *Pattern) (_ *leasehold.Lease, done func(), err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	done = func() { cancel(nil) }
	vanishes := context.AfterFunc(client, func() { cancel(context.Canceled) })
	drains := context.AfterFunc(r.cfg.Serving, func() { cancel(errDraining) })
	lease, err := p.take(ctx, r, name)
	stayed, serves := vanishes(), drains()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errDraining):
		err = errDraining
	case err == nil && !stayed: // ctx may not have ended yet: AfterFunc has only begun to end it
		err = context.Canceled
	case err == nil && !serves:
		err = errDraining
	}
	if err != nil {
		if lease != nil {
			_ = lease.Release() // it was not used
		}
		done()
		return nil, nil, err
	}
	return lease, done, nil
}

// refusal is why an operation did not begin, or did not succeed.
type refusal struct{ cause, text string }

func (r *refusal) Error() string { return r.text }

// Cause returns the name of the problem that the service answers.
func (r *refusal) Cause() string { return r.cause }

// errDraining is the error of operations that are to begin, or wait, while the service drains.
var errDraining = &refusal{"draining", "the service is about to end"}

// run does the work and releases the lock. It returns nil only if
// the lease was valid to the end.
func (r *Runner) run(p *Pattern, lease *leasehold.Lease) error {
	do := r.cfg.Operation.Do
	if p.do != nil {
		do = func(ctx context.Context, l *leasehold.Lease) error { return p.do(ctx, r, l) }
	}
	ctx, cancel := context.WithCancelCause(lease.Context())
	defer cancel(nil)
	ends := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	defer ends()
	defer func() { _ = lease.Release() }() // also if it exits
	err := do(&protected{ctx, lease}, lease)
	lost := lease.Context().Err() != nil
	cause := context.Cause(lease.Context())
	if released := lease.Release(); errors.Is(released, leasehold.ErrLost) {
		lost, cause = true, released
	}
	switch {
	case r.ctx.Err() != nil && (err != nil || lost):
		return &refusal{"draining", "the service ended before the operation did"}
	case lost:
		r.cfg.Log.Error("leasehold: operation lost its lock", "key", lease.Key(), "lease", lease.ID(), "token", lease.Token(), "cause", cause)
		return &refusal{"unprotected", fmt.Sprintf("the operation was not protected to its end: %v", cause)}
	case err != nil:
		r.cfg.Log.Warn("leasehold: operation failed", "key", lease.Key(), "lease", lease.ID(), "error", err)
		return &refusal{"operation-failed", "the operation failed"}
	}
	return nil
}

// errExited is the error of an operation that ended its goroutine.
var errExited error = &refusal{"operation-failed", "the operation failed"}

// protected is the context of an operation. Its Err compares the clock, as the Err of
// its lease does, so that a service that was stopped notices the loss at once.
type protected struct {
	context.Context
	lease *leasehold.Lease
}

// Err implements [context.Context].
func (p *protected) Err() error {
	_ = p.lease.Context().Err() // ends both, if the time is up
	return p.Context.Err()
}
