package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// Observer is a set of functions that a client calls when its locks are requested, granted,
// renewed and released, for metrics and traces. Functions that are nil are skipped. See [WithObserver]; packages leaseholdprom and leaseholdotel
// make observers.
//
// The functions are called by the goroutines at work, for different locks at the same
// time, and delay them: they must be quick, and must not use the client. The functions for one
// lease are called in the order of this list, but Renewed, Ended and Released may be called at
// the same time when a lease is lost. A re-entry under the lease's context is the same lease,
// and no function is called for it.
type Observer struct {
	// Acquire is called when a Lock or a TryLock begins, before the first request to the
	// store. It returns a context derived from ctx, for the requests to the store and for the
	// functions below.
	Acquire func(ctx context.Context, lock LockInfo) context.Context
	// Waiting is called when the store has answered that the call has to wait,
	// once per call.
	Waiting func(ctx context.Context, event WaitingInfo)
	// Acquired is called when the Lock or TryLock ends, with or without a lease. It returns a
	// context derived from ctx, from which the context of the lease is derived, and which the
	// functions below get. Without a lease the result is ignored.
	Acquired func(ctx context.Context, event AcquiredInfo) context.Context
	// Renewed is called with the outcome of each renewal.
	Renewed func(ctx context.Context, event RenewedInfo)
	// Ended is called when a lease is over, once per lease.
	Ended func(ctx context.Context, event EndedInfo)
	// Released is called when the store has answered to the release of a lease,
	// or has not in time; also for a lease that was lost and is then released.
	Released func(ctx context.Context, event ReleasedInfo)
	// Outage is called when the store has not answered any request of the client for a second,
	// and again when it answers. The calls are in this order, by one goroutine that Close waits
	// for. Only observers of the client, and not observers of a single lock, are called.
	Outage func(event OutageInfo)
}

// OutageInfo describes an outage of the store.
type OutageInfo struct {
	// Since is when the first request was sent that was not answered.
	Since time.Time
	// Over is true when the store answers again.
	Over bool
	// Err is the last error.
	Err error
}

// outage calls the client's observers.
func (c *config) outage(o session.Outage) {
	for _, observer := range c.observers {
		if observer.Outage != nil {
			observer.Outage(OutageInfo{Since: o.Since, Over: o.Over, Err: o.Err})
		}
	}
}

// LockInfo describes a requested lock.
type LockInfo struct {
	// Key is the key of the lock. Use Class where the number of values matters, as in
	// metrics.
	Key string
	// Class is the class of the key; see [WithClass].
	Class string
	// Mode is [Exclusive] for mutexes and writers, [Shared] for
	// readers and semaphores.
	Mode Mode
	// Limit is the limit of a semaphore, otherwise 0; Weight is the number of places.
	Limit, Weight int
	// Wait is false if the call asks once only.
	Wait bool
	// Owner is the owner that the store shows: see [WithName] and [WithReentrantOwner]. A lease that is taken over keeps its owner; see [Mutex.Adopt].
	Owner string
}

// Kind is "mutex", which includes the write side of an RWMutex, "read" or
// "semaphore".
func (l *LockInfo) Kind() string {
	switch {
	case l.Mode == Exclusive:
		return "mutex"
	case l.Limit > 0:
		return "semaphore"
	}
	return "read"
}

// WaitingInfo describes a call that has to wait.
type WaitingInfo struct {
	LockInfo
	// Position is the place in the queue, 1 for the head; 0 without a queue.
	Position int
	// Holder is the owner of the lease that lasts longest; empty if the store did not name
	// it.
	Holder string
}

// AcquiredInfo describes the end of a Lock or TryLock.
type AcquiredInfo struct {
	LockInfo
	// ID and Token belong to the lease, if one was granted.
	ID    string
	Token int64
	// Waited is the time from the call to its end.
	Waited time.Duration
	// Queued is true if Waiting was called before.
	Queued bool
	// Handover is the time from the release by the holder before until now, if the store
	// handed the lease to this waiter, and otherwise 0. It is an upper bound, since the
	// store's clock is known within a round trip.
	Handover time.Duration
	// Err is the error of the call.
	Err error
}

// Outcome sums Err up in a word: "granted", "held" (and not waited for), "timeout",
// "canceled", "closed" (the client was), "lost" (the lease that was to be re-entered),
// "unknown", "unavailable", "no_quorum", "not_replicated", "refused" (a mismatch, or a kind of
// lock that the store does not support), and "error" for anything else.
func (a *AcquiredInfo) Outcome() string { return word(a.Err, "granted", outcomes) }

// outcomes are compared in this order, since an error may match several.
var outcomes = []named{
	{ErrClosed, "closed"},
	{ErrLost, "lost"},
	{ErrNoQuorum, "no_quorum"},
	{ErrNotReplicated, "not_replicated"},
	{ErrUnknown, "unknown"},
	{ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{ErrHeld, "held"},
	{ErrInvalid, "refused"},
	{ErrMismatch, "refused"},
	{ErrUnsupported, "refused"},
}

// RenewedInfo describes a renewal.
type RenewedInfo struct {
	LockInfo
	ID string
	// Took is the time from sending the renewal to its answer.
	Took time.Duration
	// Err is nil if the renewal was confirmed, and matches ErrLost if the store no longer has
	// the lease. Otherwise it is the reason for the missing answer, and the renewal is repeated
	// until the lease's deadline.
	Err error
}

// Outcome sums Err up in a word: "confirmed", "lost", or "failed".
func (r *RenewedInfo) Outcome() string {
	return word(r.Err, "confirmed", []named{{ErrLost, "lost"}, {r.Err, "failed"}})
}

// EndedInfo describes the end of a lease.
type EndedInfo struct {
	LockInfo
	ID    string
	Token int64
	// Held is the time from the grant to the end.
	Held time.Duration
	// Cause is the cause of the lease's context, or wraps it in ErrContextEnded.
	Cause error
}

// Lost reports whether the lease was lost.
func (e *EndedInfo) Lost() bool { return stateAfter(e.Cause) == Lost }

// Reason sums Cause up in a word. For a lease that was lost: "broken" (by force),
// "gone" (the store no longer had it), "expired" (no renewal was confirmed before
// its deadline), or "failed" (a renewal was refused, or failed too often). For
// other leases: "released", "detached" (by [Lease.Detach]: the store still has it),
// "max_hold", "closed" (the client was), and "context" (the context it was taken under
// ended).
func (e *EndedInfo) Reason() string {
	return word(e.Cause, "", reasons)
}

var reasons = []named{
	{ErrContextEnded, "context"}, // first, since it wraps the cause of that context
	{ErrBroken, "broken"},
	{session.ErrGone, "gone"},
	{session.ErrExpired, "expired"},
	{ErrLost, "failed"},
	{errDetached, "detached"},
	{ErrReleased, "released"},
	{ErrMaxHold, "max_hold"},
	{ErrClosed, "closed"},
}

// ReleasedInfo describes a release.
type ReleasedInfo struct {
	LockInfo
	ID string
	// Took is the time from the release to its answer.
	Took time.Duration
	// Err is nil if the store confirmed the release. It matches ErrLost if only
	// now it turned out that the store no longer had the lease, and ErrUnknown or
	// ErrUnavailable if the store did not answer.
	Err error
}

// Outcome sums Err up in a word: "confirmed", "lost", "unknown", "unavailable"
// or "error".
func (r *ReleasedInfo) Outcome() string { return word(r.Err, "confirmed", outcomes) }

// named is the word for an error.
type named struct {
	err  error
	word string
}

// word returns fine for no error, and "error" for one that has no word.
func word(err error, fine string, words []named) string {
	if err == nil {
		return fine
	}
	for _, n := range words {
		if errors.Is(err, n.err) {
			return n.word
		}
	}
	return "error"
}

// WithObserver adds o to the observers of the locks. Observers are called in the order in which
// they were added. Default: no observers.
func WithObserver(o Observer) Option {
	return func(c *config) error {
		c.observers = append(slices.Clip(c.observers), &o)
		return nil
	}
}

// MaxClasses is the greatest number of classes that a client distinguishes. Further classes are
// replaced by "other".
const MaxClasses = 100

// WithClass sets how locks are grouped for [Observer]s: class gives the class
// of a key, such as the part before its first slash. It is called once per
// acquisition, if there is an observer, by many goroutines at a time. Default:
// all locks are of the class "lock". Bytes that are not UTF-8 become U+FFFD. See
// [MaxClasses].
func WithClass(class func(key string) string) Option {
	return func(c *config) error {
		if class == nil {
			return fmt.Errorf("nil class function: %w", ErrInvalid)
		}
		c.class = class
		return nil
	}
}

// oneClass is the class of locks without WithClass.
func oneClass(string) string { return "lock" }

// observation is one acquisition, and the lease it leads to, as observers see it. A
// nil observation is that of a client without observers.
type observation struct {
	observers []*Observer
	ctx       context.Context
	lock      LockInfo
	started   time.Time
	// These belong to the caller's goroutine.
	queued, granted bool
}

// observe begins an observation. It returns nil without observers.
func (r *request) observe(ctx context.Context, wait bool) *observation {
	if len(r.cfg.observers) == 0 {
		return nil
	}
	obs := &observation{observers: r.cfg.observers, started: r.c.now()}
	obs.lock = LockInfo{
		Key: r.key, Class: r.c.classes.bound(r.cfg.class(r.key)), Mode: r.mode,
		Limit: r.limit, Weight: r.weight, Wait: wait && r.cfg.maxWait != 0,
		Owner: r.cfg.owner(),
	}
	for _, o := range obs.observers {
		if o.Acquire != nil {
			ctx = o.Acquire(ctx, obs.lock)
		}
	}
	obs.ctx = ctx
	return obs
}

// ownedBy stores the owner of an adopted lease, from cfg.
func (obs *observation) ownedBy(cfg *config) {
	if obs != nil {
		obs.lock.Owner = cfg.owner()
	}
}

// context returns the context from the observers, or ctx without observers.
func (obs *observation) context(ctx context.Context) context.Context {
	if obs == nil {
		return ctx
	}
	return obs.ctx
}

// detached returns the context of a request that no caller's context ends.
func (obs *observation) detached() context.Context {
	if obs == nil {
		return context.Background()
	}
	return context.WithoutCancel(obs.ctx)
}

func (obs *observation) waiting(position int, holder string) {
	if obs == nil || obs.queued {
		return
	}
	obs.queued = true
	event := WaitingInfo{LockInfo: obs.lock, Position: position, Holder: holder}
	for _, o := range obs.observers {
		if o.Waiting != nil {
			o.Waiting(obs.ctx, event)
		}
	}
}

// acquired reports a granted lease.
func (obs *observation) acquired(h *hold, handed time.Time) {
	if obs == nil {
		return
	}
	event := AcquiredInfo{ID: h.ID(), Token: h.Token()}
	if !handed.IsZero() {
		event.Handover = h.Granted().Sub(handed)
	}
	obs.granted = true
	obs.done(h.Granted(), event)
}

// failed reports the end of a call without a lease.
func (obs *observation) failed(r *request, err error) {
	if obs != nil && !obs.granted {
		obs.done(r.c.now(), AcquiredInfo{Err: err})
	}
}

func (obs *observation) done(now time.Time, event AcquiredInfo) {
	event.LockInfo, event.Waited, event.Queued = obs.lock, now.Sub(obs.started), obs.queued
	for _, o := range obs.observers {
		if o.Acquired != nil {
			obs.ctx = o.Acquired(obs.ctx, event)
		}
	}
}

func (obs *observation) renewed(h *hold, sent time.Time, reply *driver.Reply, err error) {
	if obs == nil {
		return
	}
	if err == nil && reply.State != driver.Granted {
		err = session.Gone(reply)
	}
	event := RenewedInfo{LockInfo: obs.lock, ID: h.ID(), Took: h.c.now().Sub(sent), Err: err}
	for _, o := range obs.observers {
		if o.Renewed != nil {
			o.Renewed(obs.ctx, event)
		}
	}
}

func (obs *observation) ended(h *hold, cause error) {
	if obs == nil {
		return
	}
	event := EndedInfo{LockInfo: obs.lock, ID: h.ID(), Token: h.Token(), Held: h.Held(), Cause: cause}
	for _, o := range obs.observers {
		if o.Ended != nil {
			o.Ended(obs.ctx, event)
		}
	}
}

// now returns the time, or the zero time without observers.
func (obs *observation) now(c *Client) time.Time {
	if obs == nil {
		return time.Time{}
	}
	return c.now()
}

func (obs *observation) released(h *hold, begun time.Time, err error) {
	if obs == nil {
		return
	}
	event := ReleasedInfo{LockInfo: obs.lock, ID: h.ID(), Took: h.c.now().Sub(begun), Err: err}
	for _, o := range obs.observers {
		if o.Released != nil {
			o.Released(obs.ctx, event)
		}
	}
}

// classes bounds the number of classes, and replaces bytes that are not UTF-8, which metrics and
// traces do not accept: a part of a key may end within a character.
type classes struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *classes) bound(class string) string {
	class = strings.ToValidUTF8(class, "\uFFFD")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.seen[class]:
		return class
	case len(s.seen) == MaxClasses:
		return "other"
	case s.seen == nil:
		s.seen = make(map[string]bool)
	}
	s.seen[class] = true
	return class
}

// WaitEvent describes the state of a wait for a lock.
type WaitEvent struct {
	// Key is the key of the lock.
	Key string
	// Position is the place in the queue, 1 for the head.
	Position int
	// Holder is the lease that lasts longest, by the store's last answer; its Remaining is the
	// time until it expires unless it was renewed. After a change of the position the holder is
	// unknown: it then has no ID, and a Remaining at the head of the queue only.
	// [Client.Inspect] returns the present holder.
	Holder Holder
	// Waited is how long the call has waited.
	Waited time.Duration
}

type observerKey struct{}

// ObserveWait returns a context under which a Lock that has to wait in the
// queue calls f: when it has been queued, and with every later answer of the
// store, at least every 5 seconds while the store answers. Use it to show a wait to people.
//
// f is called by the goroutine that called Lock, so it needs no locking, and is
// not called once Lock has returned. The lock is not taken while f runs:
// f must be quick.
func ObserveWait(ctx context.Context, f func(WaitEvent)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// observer returns a function that passes the progress of a wait to the function of
// [ObserveWait] in ctx. It returns nil if ctx has none.
func (r *request) observer(ctx context.Context) func(session.Progress) {
	f, ok := ctx.Value(observerKey{}).(func(WaitEvent))
	if !ok {
		return nil
	}
	return func(p session.Progress) {
		f(WaitEvent{Key: r.key, Position: p.Position, Holder: p.Holder, Waited: p.Waited})
	}
}
