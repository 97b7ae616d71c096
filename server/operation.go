package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/api"
)

// Operation is the work that the service does under a lock when it is asked to
// execute it. It belongs to the service: a client that has gone does not end it.
type Operation struct {
	// Do does the work. ctx ends with the lease, and when the service ends; the
	// lock is kept until Do returns.
	Do func(ctx context.Context, lease *leasehold.Lease) error
	// Length is how long the work takes, as far as that is known beforehand:
	// it is what answers say, and the lease of a simple lock is made to last so
	// long without a renewal. 0 is not known: answers say how long it took.
	Length time.Duration
}

// Simulate is an operation that does nothing for d.
func Simulate(d time.Duration) Operation {
	return Operation{Length: d, Do: func(ctx context.Context, _ *leasehold.Lease) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

// pattern is a way to take a lock for an operation.
type pattern struct {
	name, summary string
	// take asks for the lock, as the pattern does.
	take func(ctx context.Context, s *Server, key string) (*leasehold.Lease, error)
	// do runs the operation under the lease; nil is the operation itself.
	do func(ctx context.Context, s *Server, lease *leasehold.Lease) error
}

// patterns are those that can be executed.
func patterns() []pattern {
	return []pattern{
		{name: "simple", summary: "under a lock that is held or refused at once, for a fixed time", take: takeSimple},
		{name: "redlock", summary: "under a lock of a majority of stores, or refused at once", take: takeRedlock},
		{name: "retry", summary: "under a lock that is asked for again with growing delays", take: takeRetry},
		{name: "watchdog", summary: "under a lock that is renewed while the operation runs", take: takeWatchdog},
		{name: "reentrant", summary: "under a lock that its owner takes twice", take: takeWatchdog, do: twice},
		{name: "read", summary: "beside other readers", take: takeRead},
		{name: "write", summary: "with no reader and no other writer beside it", take: takeWrite},
		{name: "fair", summary: "when its turn has come: first come, first served", take: takeFair},
	}
}

func operationRoutes() []route {
	var all []route
	for _, p := range patterns() {
		rt := Route{
			Method: http.MethodPost, Path: "/api/locks/" + p.name + "/{resourceId}", Operation: p.name,
			Summary: "Execute the operation " + p.summary, Verb: auth.Acquire, Reply: Executed{},
			Success: []int{http.StatusOK}, Refusals: map[int]any{http.StatusConflict: Locked{}},
			Causes: []*Cause{TooLarge, TooMany, Mismatch, Unprotected, Failed, Unsupported, Draining},
		}
		if p.name == "redlock" {
			rt.Refusals[http.StatusServiceUnavailable] = NoQuorum{}
		} else {
			rt.Causes = append(rt.Causes, Unavailable, Unknown)
		}
		all = append(all, route{Route: rt, Handle: func(s *Server, w *answer, r *http.Request) error { return s.execute(w, r, &p) }})
	}
	return all
}

// Executed is the answer to an operation that was done, under a lease that was
// valid to its end.
type Executed struct {
	Success    bool        `json:"success"`
	ResourceID string      `json:"resourceId"`
	Duration   wire.Millis `json:"durationMs"`
}

// Locked is the answer to one that was not begun, because others hold the lock.
type Locked struct {
	Error      string      `json:"error"`
	RetryAfter wire.Millis `json:"retryAfterMs"`
}

// NoQuorum is the answer to one that was not begun, because a majority of
// stores did not answer.
type NoQuorum struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// execute runs the operation under the lock of a resource.
func (s *Server) execute(w *answer, r *http.Request, p *pattern) error {
	name, err := lockName(&w.x)
	if err != nil {
		return err
	}
	if err := drained(r); err != nil {
		return err
	}
	if s.isDraining() {
		return errDraining
	}
	end, err := s.jobs.begin()
	if err != nil {
		return err
	}
	runs := false
	defer func() {
		if !runs {
			end() // also if the store has panicked
		}
	}()
	began := time.Now()
	lease, done, err := s.takeFor(r.Context(), name, p)
	if err != nil {
		if gone(r.Context()) {
			return errVanished
		}
		return notBegun(w, err)
	}
	ran := make(chan error, 1)
	runs = true
	go func() {
		err := errExited
		defer func() {
			done()
			end() // before it is told: who asks again finds the place free
			ran <- err
		}()
		err = s.run(p, lease)
	}()
	select {
	case err = <-ran:
	case <-r.Context().Done():
		return errVanished // the operation goes on
	}
	if err != nil {
		return err
	}
	took := wire.MillisOf(s.cfg.operation.Length)
	if took == 0 {
		took = wire.MillisOf(time.Since(began))
	}
	exactly(w, http.StatusOK, Executed{Success: true, ResourceID: name, Duration: took})
	return nil
}

// takeFor takes the lock while the client waits and the service does not drain.
// The lease ends with neither: it lasts until the operation has ended. done is
// called then.
func (s *Server) takeFor(client context.Context, name string, p *pattern) (_ *leasehold.Lease, done func(), err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	done = func() { cancel(nil) }
	vanishes := context.AfterFunc(client, func() { cancel(errVanished) })
	drains := context.AfterFunc(s.serving, func() { cancel(errDraining) })
	lease, err := p.take(ctx, s, name)
	stayed, serves := vanishes(), drains()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errDraining):
		err = errDraining
	case err == nil && (!stayed || !serves):
		_ = lease.Release() // nothing was done under it
		err = context.Cause(ctx)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return lease, done, nil
}

// errDraining is told to who comes, or waits, when the service drains.
var errDraining = api.NewProblem(Draining, "the service is about to end").After(api.RetryLater)

// run does the work and gives the lock back. It says that all is well only if
// the lease was valid to the end.
func (s *Server) run(p *pattern, lease *leasehold.Lease) error {
	do := s.cfg.operation.Do
	if p.do != nil {
		do = func(ctx context.Context, l *leasehold.Lease) error { return p.do(ctx, s, l) }
	}
	ctx, cancel := context.WithCancelCause(lease.Context())
	defer cancel(nil)
	ends := context.AfterFunc(s.jobs.ctx, func() { cancel(context.Cause(s.jobs.ctx)) })
	defer ends()
	defer func() { _ = lease.Release() }() // also if it exits
	err := do(&protected{ctx, lease}, lease)
	lost := lease.Context().Err() != nil
	cause := context.Cause(lease.Context())
	if released := lease.Release(); errors.Is(released, leasehold.ErrLost) {
		lost, cause = true, released
	}
	switch {
	case s.jobs.ctx.Err() != nil && (err != nil || lost):
		return api.NewProblem(Draining, "the service ended before the operation did").After(api.RetryLater)
	case lost:
		s.cfg.log.Error("leasehold: operation lost its lock", "key", lease.Key(), "lease", lease.ID(), "token", lease.Token(), "cause", cause)
		return api.NewProblem(Unprotected, "the operation was not protected to its end: %v", cause)
	case err != nil:
		s.cfg.log.Warn("leasehold: operation failed", "key", lease.Key(), "lease", lease.ID(), "error", err)
		return api.NewProblem(Failed, "the operation failed")
	}
	return nil
}

// errExited is told of an operation that has ended its goroutine.
var errExited error = api.NewProblem(Failed, "the operation failed")

// protected is the context of an operation. Its Err compares the clock, as that of
// its lease does: a service that was stopped sees the loss at its first look.
type protected struct {
	context.Context
	lease *leasehold.Lease
}

// Err implements [context.Context].
func (p *protected) Err() error {
	_ = p.lease.Context().Err() // ends both, if the time is up
	return p.Context.Err()
}

// notBegun answers why an operation was not begun.
func notBegun(w http.ResponseWriter, err error) error {
	var held *leasehold.HeldError
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		return err
	case errors.As(err, &held):
		after := wire.MillisOf(held.Remaining)
		if after <= 0 {
			after = wire.MillisOf(api.RetryLater)
		}
		w.Header().Set("Retry-After", api.Seconds(after.Duration()))
		exactly(w, http.StatusConflict, Locked{Error: "Resource locked", RetryAfter: after})
		return nil
	case errors.Is(err, leasehold.ErrNoQuorum):
		exactly(w, http.StatusServiceUnavailable, NoQuorum{
			Error: "Quorum not reached", Message: "Unable to acquire lock on majority of instances",
		})
		return nil
	}
	return err
}

// exactly answers with a body of which every byte is specified.
func exactly(w http.ResponseWriter, status int, body any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		panic(err) // every body can be encoded
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// drained reads a body of which nothing is wanted, so that net/http notices a
// client that goes.
func drained(r *http.Request) error {
	_, err := io.Copy(io.Discard, r.Body)
	return api.BodyError(err)
}
