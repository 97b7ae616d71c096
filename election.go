package leasehold

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// MaxValue is the length of the longest value that a leader can publish, in
// bytes.
const MaxValue = 4096

// valueLabel is the label with the value of a candidate.
const valueLabel = "leasehold.value"

// ErrResigned is the cause of the context of Lead's function after [Election.Resign].
var ErrResigned = fmt.Errorf("resigned: %w", ErrReleased)

// Election chooses one leader among the candidates of a key. Leadership is a [Mutex]
// held for long, so that candidates are elected in the order of arrival, and a leader
// that dies is followed within one TTL. It is safe for concurrent use, but for Lead,
// which runs once at a time.
type Election struct {
	campaign request

	mu   sync.Mutex
	term *termContext            // of the present term; nil without one
	end  context.CancelCauseFunc // ends it
}

// Leader describes the leader of an election.
type Leader struct {
	// Owner of the leader's lease, and its id.
	Owner, ID string
	// Value is the value of the leader's [Client.Election].
	Value string
	// Token is greater for every later leader; 0 if the store mints no tokens.
	Token int64
	// Since is when it was elected, by its own clock.
	Since time.Time
}

// Election returns the election of a key, in which this candidate publishes
// value, for example the address at which it can be reached: at most 4 KiB of UTF-8 without
// control characters. See [Client.Mutex]. An election is never re-entered: it refuses
// [WithReentrantOwner] with ErrInvalid.
func (c *Client) Election(key, value string, opts ...Option) *Election {
	publish := func(cfg *config) error {
		if cfg.reentrantOwner != "" { // two candidates of one name are two
			return fmt.Errorf("reentrant owner %q of an election: %w", cfg.reentrantOwner, ErrInvalid)
		}
		cfg.MaxOutage = noLimit
		cfg.passes = 0
		cfg.labels = maps.Clone(cfg.labels)
		if cfg.labels == nil {
			cfg.labels = make(map[string]string)
		}
		cfg.labels[valueLabel] = value
		return check.Text("value", value, 0, MaxValue)
	}
	return &Election{campaign: c.lockRequest(key, append(slices.Clip(opts), publish), use{mode: Exclusive})}
}

// Lead campaigns, runs fn with a context that lives as long as the leadership,
// and campaigns again whenever the leadership was lost. fn must return when its
// context ends: the next candidate leads after that, or when the lease is over. The
// context's Err compares the clock, as that of [Lease.Context] does. If fn panics
// the leadership is given up.
//
// Lead returns the result of fn if fn returns
//
//   - while it still leads,
//   - after [Election.Resign], or
//   - with an error of another cause than the end of its context; if the leadership was
//     lost at the same time, the error of Lead matches ErrLost as well.
//
// If ctx ends during the campaign, Lead returns its error. If ctx ends while fn runs, the
// context of fn ends. Lead releases the lock when fn has returned, and returns the result of
// fn. If fn takes longer than one TTL to return, the next candidate leads before that.
//
// An outage of the store never ends a campaign. An error that time does not heal does, such
// as a wrong password ([driver.ErrPermanent]).
//
// Under the context of a lease of the same key Lead fails with ErrMismatch instead of
// waiting for itself.
func (e *Election) Lead(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	if e.campaign.err != nil {
		return e.campaign.err
	}
	if outer, ok := ctx.Value(&e.campaign).(*Lease); ok && !outer.gone() {
		return lockError(e.campaign.key, fmt.Errorf("campaign under a lease of the same key: %w", ErrMismatch))
	}
	for {
		lease, err := e.campaign.acquire(ctx, true)
		if err != nil {
			return err
		}
		term, end := context.WithCancelCause(lease.Context())
		err, released := e.serve(&termContext{term, lease}, end, fn)
		if resigned := errors.Is(context.Cause(term), ErrResigned); !resigned && errors.Is(released, ErrLost) && ctx.Err() == nil && onlyEnd(err, lease.Context()) {
			continue
		}
		return withRelease(err, released)
	}
}

// serve runs fn for one term, and releases the lease when fn ends, also by a panic.
func (e *Election) serve(term *termContext, end context.CancelCauseFunc, fn func(context.Context, *Lease) error) (err, released error) {
	defer func() { released = term.lease.Release() }()
	defer end(ErrReleased)
	e.setTerm(term, end)
	defer e.setTerm(nil, nil)
	return fn(term, term.lease), nil
}

// setTerm stores the present term; nil ends it.
func (e *Election) setTerm(term *termContext, end context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.end = term, end
}

// termContext is derived from that of a lease and compares the clock, too.
type termContext struct {
	context.Context
	lease *Lease
}

// Err implements [context.Context].
func (c *termContext) Err() error {
	c.lease.live()
	return c.Context.Err()
}

// onlyEnd reports whether the end of ctx is the only cause of err, that is, of all errors that
// it wraps.
func onlyEnd(err error, ctx context.Context) bool {
	if err == nil || errors.Is(ctx.Err(), err) || errors.Is(context.Cause(ctx), err) {
		return true
	}
	switch err := err.(type) { //nolint:errorlint // this walks the tree itself
	case interface{ Unwrap() error }:
		inner := err.Unwrap()
		return inner != nil && onlyEnd(inner, ctx)
	case interface{ Unwrap() []error }:
		more := func(err error) bool { return !onlyEnd(err, ctx) }
		return len(err.Unwrap()) > 0 && !slices.ContainsFunc(err.Unwrap(), more)
	}
	return false
}

// IsLeader reports whether this Election leads now: whether Lead runs fn, and the
// context of fn has not ended. It compares the clock and asks no store. [Election.Leader]
// returns the leader among all candidates.
func (e *Election) IsLeader() bool {
	e.mu.Lock()
	term := e.term
	e.mu.Unlock()
	return term != nil && term.Err() == nil
}

// Resign ends the present term, if there is one: the context of Lead's fn ends
// with ErrResigned, and when fn has returned the next candidate leads.
func (e *Election) Resign() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.end != nil {
		e.end(ErrResigned)
	}
}

// Leader returns the leader. The error matches ErrNotHeld if there is no leader, ErrUnavailable
// if the store does not answer, and ErrUnsupported if it cannot be inspected.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if e.campaign.err != nil {
		return Leader{}, e.campaign.err
	}
	c := e.campaign.c
	snap, err := c.read(ctx, e.campaign.key, func(ctx context.Context, key string) (Snapshot, error) {
		return driver.Glance(ctx, c.session.Driver(), key) // without the waiters, at a lower cost
	})
	if err != nil {
		return Leader{}, err
	}
	for _, h := range snap.Holders {
		if h.Mode == driver.Exclusive {
			return Leader{Owner: h.Owner, ID: h.ID, Value: h.Labels[valueLabel], Token: h.Token, Since: h.Since}, nil
		}
	}
	return Leader{}, lockError(e.campaign.key, fmt.Errorf("no leader: %w", ErrNotHeld))
}

// observeEvery is the time between two requests of Observe.
const observeEvery = time.Second

// Observe yields the leader, and again whenever it has changed, until ctx ends or the
// loop is left. While there is no leader it yields the zero Leader. If the store fails it yields
// the error and continues. It asks the store every second.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		for yielded := false; ; {
			now, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, ErrNotHeld):
				now, err = Leader{}, nil
			}
			if (!yielded || err != nil || now.ID != last.ID) && !yield(now, err) {
				return
			}
			if err == nil {
				last, yielded = now, true
			}
			if !timing.Sleep(ctx, observeEvery) {
				return
			}
		}
	}
}
