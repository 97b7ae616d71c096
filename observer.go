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

// Observer is a set of functions that a client calls as its locks are asked
// for, taken, renewed and given back: for metrics and traces. Those that are nil
// are not called. See [WithObserver]; packages leaseholdprom and leaseholdotel
// make observers.
//
// The functions are called by the goroutines at work, for different locks at the same
// time, and hold them up: they must be quick, and must not use the client. Those of one
// lease are called in the order in which they stand here, but Renewed, Ended and
// Released may be called at the same time when a lease is lost. A re-entry under the
// lease's context is the same lease, and nothing is called for it.
type Observer struct {
	// Acquire is called when a Lock or a TryLock begins, before anything is
	// asked of the store. What it returns, derived from ctx, is the context of
	// the requests that go to the store for this call, and of the calls below.
	Acquire func(ctx context.Context, lock LockInfo) context.Context
	// Waiting is called when the store has answered that the call has to wait,
	// once per call.
	Waiting func(ctx context.Context, event WaitingInfo)
	// Acquired is called when the Lock or TryLock ends, whatever its outcome.
	// What it returns, derived from ctx, is what the context of the lease
	// derives from, and the context of the calls below; it is of no use if no
	// lease was granted.
	Acquired func(ctx context.Context, event AcquiredInfo) context.Context
	// Renewed is called with the outcome of each renewal.
	Renewed func(ctx context.Context, event RenewedInfo)
	// Ended is called when a lease is over, once per lease.
	Ended func(ctx context.Context, event EndedInfo)
	// Released is called when the store has answered to the release of a lease,
	// or has not in time; also for a lease that was lost and is then released.
	Released func(ctx context.Context, event ReleasedInfo)
	// Outage is called when the store has answered nothing for a second, of all that
	// the client asks, and again when it has answered: one call after the other, in this
	// order, by a goroutine of its own that Close waits for. Only observers of the client,
	// not those of one lock, are told.
	Outage func(event OutageInfo)
}

// OutageInfo tells of a store that does not answer.
type OutageInfo struct {
	// Since is when the first request was sent that was not answered.
	Since time.Time
	// Over tells that the store answers again.
	Over bool
	// Err is what failed last.
	Err error
}

// outage tells the observers of the client.
func (c *config) outage(o session.Outage) {
	for _, observer := range c.observers {
		if observer.Outage != nil {
			observer.Outage(OutageInfo{Since: o.Since, Over: o.Over, Err: o.Err})
		}
	}
}

// LockInfo describes what is asked for.
type LockInfo struct {
	// Key is that of the lock. Keys are many: use Class where the number of
	// values matters, as it does in metrics.
	Key string
	// Class is what [WithClass] makes of the key.
	Class string
	// Mode is [Exclusive] for mutexes and writers, [Shared] for
	// readers and semaphores.
	Mode Mode
	// Limit is that of a semaphore, 0 for others; Weight the number of places.
	Limit, Weight int
	// Wait is false if the call asks once only.
	Wait bool
	// Owner is what the store shows of the holder: see [WithName] and
	// [WithReentrantOwner]. A lease that is taken over keeps its owner; see [Mutex.Adopt].
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

// WaitingInfo tells of a call that has to wait.
type WaitingInfo struct {
	LockInfo
	// Position is the place in the queue, 1 for the head; 0 without a queue.
	Position int
	// Holder is the owner of the lease that stays longest; empty if the store
	// did not say.
	Holder string
}

// AcquiredInfo tells how a call ended.
type AcquiredInfo struct {
	LockInfo
	// ID and Token are those of the lease, if one was granted.
	ID    string
	Token int64
	// Waited is the time from the call to its end.
	Waited time.Duration
	// Queued tells that Waiting was called before.
	Queued bool
	// Handover is the time from the release by the holder before until now, if the store
	// handed the lease to this waiter, and otherwise 0. It is an upper bound, since the
	// store's clock is known within a round trip.
	Handover time.Duration
	// Err is what the call returns.
	Err error
}

// Outcome sums Err up in a word: "granted", "held" (and not waited for), "timeout",
// "canceled", "closed" (the client was), "lost" (the lease that was to be re-entered),
// "unknown", "unavailable", "no_quorum", "not_replicated", "refused" (a mismatch, or
// what the store does not support), and "error" for anything else.
func (a *AcquiredInfo) Outcome() string { return word(a.Err, "granted", outcomes) }

// outcomes are asked in this order: an error matches several.
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

// RenewedInfo tells of a renewal.
type RenewedInfo struct {
	LockInfo
	ID string
	// Took is the time from sending the renewal to its answer.
	Took time.Duration
	// Err is nil if the renewal was confirmed, matches ErrLost if the store no
	// longer has the lease, and says otherwise why there was no answer. Such a
	// renewal is repeated until the lease's deadline.
	Err error
}

// Outcome sums Err up in a word: "confirmed", "lost", or "failed".
func (r *RenewedInfo) Outcome() string {
	return word(r.Err, "confirmed", []named{{ErrLost, "lost"}, {r.Err, "failed"}})
}

// EndedInfo tells of the end of a lease.
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
func (e *EndedInfo) Lost() bool { return wasLost(e.Cause) }

// Reason sums Cause up in a word. For a lease that was lost: "broken" (by force),
// "gone" (the store no longer had it), "expired" (no renewal was confirmed before
// its deadline), or "failed" (a renewal was refused, or failed too often). For
// others: "released", "detached" (by [Lease.Detach]: the store still has it),
// "max_hold", "closed" (the client was), and "context" (the context it was taken under
// ended).
func (e *EndedInfo) Reason() string {
	return word(e.Cause, "", reasons)
}

var reasons = []named{
	{ErrContextEnded, "context"}, // whatever that context ended by
	{ErrBroken, "broken"},
	{session.ErrGone, "gone"},
	{session.ErrExpired, "expired"},
	{ErrLost, "failed"},
	{errDetached, "detached"},
	{ErrReleased, "released"},
	{ErrMaxHold, "max_hold"},
	{ErrClosed, "closed"},
}

// ReleasedInfo tells of a release.
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

// named is a word for what an error matches.
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

// WithObserver adds o to the observers of the locks; it is called after those that were
// given before. Default: none, which costs nothing.
func WithObserver(o Observer) Option {
	return func(c *config) error {
		c.observers = append(slices.Clip(c.observers), &o)
		return nil
	}
}

// MaxClasses is how many classes of locks a client tells apart. Whatever comes
// after that is of the class "other".
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
	queued    bool // belongs to the caller's goroutine
	granted   bool // so does this
}

// observe begins one, nil if nobody observes.
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

// ownedBy notes whose lease is taken over, as cfg has it.
func (obs *observation) ownedBy(cfg *config) {
	if obs != nil {
		obs.lock.Owner = cfg.owner()
	}
}

// context returns the one to go on with in place of ctx.
func (obs *observation) context(ctx context.Context) context.Context {
	if obs == nil {
		return ctx
	}
	return obs.ctx
}

// detached returns the context of requests that nobody waits for any more.
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

// acquired tells of a lease.
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

// failed tells of a call that ends without a lease.
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

// now is the time, where somebody wants to know.
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

// classes bounds how many classes there are, and has them be text: metrics and traces take
// nothing else, and a part of a key may end within a character.
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

// WaitEvent is what a call that waits for a lock knows about its wait.
type WaitEvent struct {
	// Key is that of the lock.
	Key string
	// Position is the place in the queue, 1 for the head.
	Position int
	// Holder is the lease that stays longest, as the store described it last; its
	// Remaining is what is left of it by now unless it was renewed. It is not known any
	// more once the place in the queue has changed: it then has no ID, and a Remaining
	// at the head of the queue only. [Client.Inspect] tells who holds the lock now.
	Holder Holder
	// Waited is how long the call has waited.
	Waited time.Duration
}

type observerKey struct{}

// ObserveWait returns a context under which a Lock that has to wait in the
// queue calls f: when it has been queued, and with every later answer of the
// store, at least every 5 seconds while the store answers. It is for showing a
// wait to people.
//
// f is called by the goroutine that called Lock, so it needs no locking, and is
// not called once Lock has returned. The lock is not taken while f runs:
// f must be quick.
func ObserveWait(ctx context.Context, f func(WaitEvent)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// observer returns what tells the function that ctx carries how a wait for the lock
// goes on, nil if there is none.
func (r *request) observer(ctx context.Context) func(session.Progress) {
	f, ok := ctx.Value(observerKey{}).(func(WaitEvent))
	if !ok {
		return nil
	}
	return func(p session.Progress) {
		f(WaitEvent{Key: r.key, Position: p.Position, Holder: p.Holder, Waited: p.Waited})
	}
}
