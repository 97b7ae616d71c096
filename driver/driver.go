// Package driver is the contract between the leasehold library and a store.
//
// A store keeps rooms. A room has a key; parties enter it exclusively or
// shared, for a time, and whoever cannot enter may queue. Every kind of lock
// is a request to the same room: a mutex enters exclusively, a reader enters
// shared, a semaphore's permit enters shared with a limit and a weight.
//
// A [Driver] has three verbs that never wait. Each is one atomic step in the
// store and idempotent for its lease id. What a store can do beyond them it
// says by implementing [Watcher], [Inspector], [Breaker] or [Checker]; what it
// cannot do it says by being [Limited]. One that only knows three verbs of
// its own becomes a driver by [FromBasic]. What stands around a driver embeds
// [Wrapper], so that nothing of that is lost.
//
// An error from a driver means "the store did not answer, or its answer is no
// use": the outcome is unknown. It never means "no". A driver returns the raw
// error of its client, wrapped with one of the sentinels of this package where
// one fits; the library adds what was attempted and on which key.
//
// Implementations are safe for concurrent use. Package
// [github.com/leasehold-go/leasehold/driver/drivertest] holds the conformance
// suite that every implementation passes.
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Mode says how a party enters the room.
type Mode uint8

const (
	// Exclusive parties are alone in the room, but for parties of the same
	// re-entrant owner.
	Exclusive Mode = iota
	// Shared parties stand beside other shared parties, up to a limit.
	Shared
)

// Policy says whom a request must let pass among those who wait.
type Policy uint8

const (
	// FIFO lets everybody pass who came earlier.
	FIFO Policy = iota
	// Barging lets nobody pass who waits: it takes a free room ahead of the
	// queue. When it has to wait it waits in arrival order, and is woken
	// rather than handed the room, so that another barging request may take
	// it first.
	Barging
	// WritersFirst lets exclusive waiters pass before shared ones.
	WritersFirst
	// ReadersFirst lets shared waiters pass before exclusive ones.
	ReadersFirst
)

// String returns the name that the policy has in the HTTP service and the command.
func (p Policy) String() string {
	names := [...]string{FIFO: "fifo", Barging: "barging", WritersFirst: "writers-first", ReadersFirst: "readers-first"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// MaxPlaces is the greatest limit and the greatest weight: what an int holds
// everywhere. A store refuses more with [ErrInvalid].
const MaxPlaces = 1<<31 - 1

// Request asks to enter a room.
type Request struct {
	// Key names the room: 1 to 512 bytes of UTF-8 without control characters.
	Key string
	// ID is the lease id, chosen by the caller and unique per acquisition:
	// 1 to 64 bytes of [A-Za-z0-9_.-], the first a letter or digit. Asking
	// again with the same id has the effect and the answer of asking once.
	ID string
	// Owner says who asks, for people to read. At most 256 bytes, without
	// control characters.
	Owner string
	// Reenter makes Owner an identity: the request enters a room that
	// parties of the same re-entrant owner occupy exclusively, and shares
	// their token. Where the owner is inside in the other mode, the request is
	// refused with ErrMismatch: it would wait for itself.
	Reenter bool
	// Labels are shown by inspection.
	Labels map[string]string
	// Since is the caller's wall clock, shown by inspection and used for
	// nothing else.
	Since time.Time

	Mode   Mode
	Policy Policy
	// Ordered insists on the policy's order: a store that keeps no queue refuses
	// the request, and a store that keeps one takes no notice of it.
	Ordered bool
	// Limit bounds the sum of the weights of shared parties; 0 is no limit, and
	// [MaxPlaces] the greatest. All that are in the room or wait for it state the
	// same limit.
	Limit int
	// Resize puts Limit in force instead of entering: nobody inside is
	// touched, and nobody enters before there is room by the new limit. Whoever
	// waits for more than it allows loses the place when its turn comes. The
	// answer is Resized, or Gone if nobody uses the room shared.
	Resize bool
	// Downgrade makes a shared party of the exclusive one that is inside with
	// this id, and lets nobody in: the answer is Granted, or Gone if no lease of
	// this id is inside. So the request changes nothing if it arrives after the
	// end of the lease. Mode is Shared.
	Downgrade bool
	// Weight is what a shared party takes of the limit, at most [MaxPlaces]; 0
	// counts as 1.
	Weight int

	// TTL is the life of the lease, counted by the store from the grant.
	TTL time.Duration
	// TicketTTL is the life of the ticket with which a request queues when it
	// cannot enter; asking again or renewing keeps it alive. 0 asks once and
	// never queues. A store that keeps no queue answers Busy either way.
	TicketTTL time.Duration
	// ConfirmWindow is the window in which a handed-over grant must be confirmed
	// by a renewal, or by asking again, before it passes on. The head of
	// the queue has as long to ask when it is called, because somebody behind
	// it would have room. It is above 0 where TicketTTL and HintAddress are given.
	ConfirmWindow time.Duration
	// HintAddress is the address at which the caller hears hints, from
	// [Subscription.Address]. A ticket without one is never handed the room:
	// it takes it by asking, and it is up to the caller to ask often enough
	// to keep the ticket alive. Asking again moves a ticket or lease to the
	// address that the later request gives.
	HintAddress string
	// LockDelay keeps the room closed for so long after the lease expired or was
	// broken, and after a hand-over that was not confirmed, since the waiter
	// may have begun to work. A clean release is not followed by it.
	LockDelay time.Duration
	// MinToken makes the token of the grant greater than this, but for a
	// re-entry, which has the token of those inside. A value more than 24 h
	// ahead of the store's clock in µs is refused with ErrInvalid.
	MinToken int64
	// Visit names who asks, where several may ask with one ID, so that each can
	// undo what it asked for by a Release that carries the name, and never ends
	// what another was told. Repetitions of a request carry the same one. It is
	// a path of words between slashes, at most 128 bytes of [A-Za-z0-9_./-];
	// whoever asks on behalf of a visit appends a word of its own, and the name
	// of a visit means those below it too. A ticket belongs to the visit that
	// asked for it last. A lease belongs to what all visits that have asked for
	// it have in common, and to none if that is nothing, or if one of them had
	// no name.
	Visit string
	// Guard refuses the request with ErrAmnesia where the store knows no token
	// of the key and carries no mark: it may have lost its data, and with them
	// a lease that still counts. Only a [Marker] serves it; asking for a key
	// whose token is known costs nothing more.
	Guard bool
	// SingleUseID marks an id that the store refuses, with Gone, for a while after
	// its release: for Ref.RejectIDFor, if that Ref has SingleUseID too. All
	// requests of one id agree in it. It is for callers that cannot know which of
	// their requests are repetitions; only such requests pay for it, and not others
	// of the same room. A store may remember a hash of 64 bits in place of an id.
	SingleUseID bool
}

// Ref names a lease or a ticket.
type Ref struct {
	Key string
	ID  string
	// TTL is the new life of the lease (Renew), counted from the renewal.
	TTL time.Duration
	// TicketTTL and HintAddress are the new life and address of a ticket (Renew).
	TicketTTL   time.Duration
	HintAddress string
	// Visit lets a Release end only a lease or ticket that belongs to this visit
	// or to one below it. If it belongs to another, or to several, the answer is
	// Busy and nothing has changed: somebody else may have been told that it is
	// granted. See Request.Visit.
	Visit string
	// Token raises the token of a lease to at least this (Renew), and so every
	// token to come for the key. Leases of one owner that are inside together
	// have one token. A value more than 24 h ahead of the store's clock in µs
	// is not taken over: the reply tells what the token is.
	Token int64
	// Level makes Token the token of the lease also where it is greater (Renew).
	// Every token to come is above both. It is for who knows that nobody has
	// been told the greater one.
	Level bool
	// KeepClosed closes the room for so long after the release (Release).
	KeepClosed time.Duration
	// RejectIDFor makes the store refuse the id for so long after the release, so
	// that an Acquire still on its way cannot take effect (Release). It is set
	// when an Acquire of this id went unanswered.
	RejectIDFor time.Duration
	// SingleUseID makes RejectIDFor concern requests with SingleUseID, and only
	// those (Release).
	SingleUseID bool
	// Uncontended repeats what the last answer about the lease said, or is a guess: a
	// hint on which a store may try a shorter way first (Renew, Release).
	Uncontended bool
}

// State is the answer of the store.
type State uint8

const (
	// Gone: no lease and no ticket of this id is known (Renew, Release), or
	// the id may not enter any more (Acquire, after a Release with RejectIDFor).
	Gone State = iota
	// Busy: not admitted, and not queued.
	Busy
	// Queued: not admitted, a ticket is kept.
	Queued
	// Granted: inside, with a full lease of the TTL asked for, which the
	// store counts from a moment after the request was sent.
	Granted
	// Released: the lease existed and has ended by this call.
	Released
	// Left: the ticket existed and has ended by this call.
	Left
	// Resized: the limit in force was changed (Acquire with Resize).
	Resized
)

// Reply is what a store answers to one request.
type Reply struct {
	State State
	// Token is the fencing token of a grant: greater than every token given
	// before for the key, below 2^53; 0 if the store mints none, or could not
	// look it up for a renewal.
	Token int64
	// Holds is the number of leases that the same owner has in the room,
	// this one included, after a grant.
	Holds int
	// Position is the place in the queue, 1 for the head.
	Position int
	// RetryAfter is the time after which asking again is useful because the
	// obstacle may have ended by itself: for Busy, for the head of the queue,
	// and for the ticket behind it while the head is called (see
	// Request.ConfirmWindow). 0 is unknown: a waiter then asks when its ticket needs
	// it.
	RetryAfter time.Duration
	// Holders is a glimpse of who is inside, at most 8, longest-lived first.
	Holders []Holder
	// Clock is the store's clock when it answered, since an origin of its
	// own. It is compared only with other readings of the same store; 0 if
	// the store gave none.
	Clock time.Duration
	// Reason tells, with Gone, that the lease was broken, and why.
	Reason string
	// Broken is set with Gone when the lease was broken by force.
	Broken bool
	// Uncontended may be set with Granted when nobody else is inside or waits. Nothing
	// depends on it but the cost of a Release: see Ref.Uncontended.
	Uncontended bool
	// Replayed is set with Granted when the lease was granted and confirmed before
	// this Acquire, which repeats one; and with Gone, where SingleUseID was given, when
	// the id was released before.
	Replayed bool
}

// Holder describes a party inside a room.
type Holder struct {
	// ID is the lease id.
	ID string
	// Owner is what the request stated, for people to read.
	Owner string
	Mode  Mode
	// Weight is what a shared party takes of the limit.
	Weight int
	// Token is the fencing token of the lease, 0 if there is none.
	Token int64
	// Since is what the request stated: when it began, by the clock of its process.
	Since time.Time
	// Remaining is the time until the lease ends unless it is renewed.
	Remaining time.Duration
	// Labels are those of the request.
	Labels map[string]string
	// Confirmed is false while a handed-over grant awaits its first renewal.
	Confirmed bool
	// Foreign marks a holder that is not ours: another library's lock.
	Foreign bool
}

// Driver is what every store implements.
type Driver interface {
	// Acquire asks to enter and answers Granted, Busy, Queued or Gone. A
	// holder that is inside exclusively and asks again in Shared mode with the
	// same id becomes a sharer in the same step (a downgrade, which
	// Request.Downgrade confines to holders); if its owner is inside more than
	// once that is refused with ErrMismatch. The other direction changes
	// nothing.
	Acquire(ctx context.Context, req Request) (Reply, error)

	// Renew renews leases, confirms handed-over grants, and keeps tickets
	// alive; a ticket whose turn has come is granted by it. A store that keeps
	// no queue, but knows who waits, lets one in if it can, and else answers
	// Busy. Renew never creates
	// a lease, and never shortens one: a renewal delayed on its way must not
	// undo a longer one that overtook it.
	//
	// each is called once for every ref, by its index, as the answer for it
	// becomes known, never concurrently; a store made of several nodes
	// reports those of a fast node without waiting for a slow one. Renew
	// returns after the last call of each.
	Renew(ctx context.Context, refs []Ref, each func(i int, reply Reply, err error))

	// Release ends a lease, or leaves the queue, and answers Released, Left
	// or Gone. It hands the room on in the same step.
	Release(ctx context.Context, ref Ref) (Reply, error)

	// Close ends what the driver itself started. Calls under way end soon.
	Close() error
}

// HintKind tells what a hint is about.
type HintKind uint8

const (
	// HintAsk: asking again is useful, after Hint.RetryAfter.
	HintAsk HintKind = iota
	// HintGranted: the room was handed to this ticket and awaits
	// confirmation.
	HintGranted
	// HintBroken: the lease was broken by force.
	HintBroken
	// HintResync: hints may have been lost; everybody at this address asks.
	HintResync
)

// Hint wakes a waiter. Hints may be lost, late or doubled; nothing depends on
// them but speed.
type Hint struct {
	Kind HintKind
	// ID is the ticket or lease that is meant; empty with HintResync.
	ID string
	// Token, Clock and ConfirmWindow describe a grant: its fencing token, the
	// store's clock at the grant, and the window in which it is to be
	// confirmed, counted from Clock.
	Token         int64
	Clock         time.Duration
	ConfirmWindow time.Duration
	// RetryAfter is the delay of an ask.
	RetryAfter time.Duration
	// Reason is why the lease was broken.
	Reason string
}

// Subscription is a live delivery of hints.
type Subscription interface {
	// Address is what requests carry as HintAddress. It is empty while the store
	// cannot deliver.
	Address() string
	// Close ends the delivery and waits for a call of the function under way.
	Close() error
}

// Watcher is implemented by stores that can wake waiters.
type Watcher interface {
	// Watch calls f for every hint sent to the subscription's address, one
	// at a time. f must not block, and must not close the subscription.
	Watch(f func(Hint)) (Subscription, error)
}

// Waiter describes a ticket in the queue.
type Waiter struct {
	// ID is the id of the ticket, and of the lease that follows it.
	ID string
	// Owner is what the request stated, for people to read.
	Owner string
	Mode  Mode
	// Weight is what a shared party will take of the limit.
	Weight int
	// Position is the place in the queue, 1 for the head.
	Position int
	// Since is what the request stated: when it began, by the clock of its process.
	Since time.Time
	// Remaining is the time until the ticket expires unless it is kept alive.
	Remaining time.Duration
	// Labels are those of the request.
	Labels map[string]string
}

// Snapshot is one consistent picture of a room.
type Snapshot struct {
	Key string
	// Holders are those inside, in no particular order.
	Holders []Holder
	// Waiters stand in the order in which they will be served.
	Waiters []Waiter
	// Token is the last token minted, 0 if unknown.
	Token int64
	// Limit is the limit in force, 0 for none.
	Limit int
	// Closed is how much longer the room stays closed although nobody is
	// inside.
	Closed time.Duration
}

// Inspector is implemented by stores that can be looked into.
type Inspector interface {
	// Inspect returns the room's picture; a room that is empty is no error.
	Inspect(ctx context.Context, key string) (Snapshot, error)
	// List returns the keys, with the given prefix, of rooms that are
	// occupied or waited for, in no particular order, and the cursor of the
	// next page, empty after the last. A page may be empty. A key that lives
	// through the whole listing is returned at least once.
	List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error)
}

// Breaker is implemented by stores in which a lease can be ended by force.
type Breaker interface {
	// Break ends the lease or ticket id, keeps the room closed for the delay
	// its request stated, and tells the holder the reason as soon as it asks: 1 to
	// 256 bytes of UTF-8 without control characters.
	// It answers Released, Left, or Gone when id is not there: somebody else's
	// lease is never broken.
	Break(ctx context.Context, key, id, reason string) (Reply, error)
}

// Marker is implemented by stores that can tell that they have lost their
// data, for a majority of stores that must know. Their mark is one for the
// whole store, has no end of its own, and is lost with the data.
type Marker interface {
	// Marked returns the mark, with what is left of its quarantine. ok is false
	// if the store carries none.
	Marked(ctx context.Context) (mark Mark, ok bool, err error)
	// Reserve keeps a store that carries no mark for who is about to mark it, by
	// a name of [A-Za-z0-9], for so long at most. It reports whether the store
	// is reserved under this name now: not if it carries a mark, or is reserved
	// under another one. A reservation is lost with the data.
	Reserve(ctx context.Context, by string, life time.Duration) (bool, error)
	// Mark sets the mark if there is none; one that is there stays as it is. If
	// by is not empty it does so only while the store is reserved under this
	// name, and so has lost nothing since.
	Mark(ctx context.Context, mark Mark, by string) error
}

// Mark is what a store carries that has not lost its data.
type Mark struct {
	// Name is kept and returned: what the majority of stores needs to know of its
	// members. At most 64 bytes of [A-Za-z0-9.-].
	Name string
	// Quarantine is for how much longer the store refuses guarded requests of
	// keys that it does not know.
	Quarantine time.Duration
}

// Errors that a driver wraps where they fit.
var (
	// ErrInvalid: the request can never succeed as it stands.
	ErrInvalid = errors.New("invalid")
	// ErrMismatch: the room is in use in a way that contradicts the request
	// (another limit), or the key holds data that is not a lock. Nothing was
	// changed.
	ErrMismatch = errors.New("mismatch")
	// ErrUnavailable: the request certainly had no effect; the store could
	// not be reached, refused to serve, or did not let us in.
	ErrUnavailable = errors.New("store unavailable")
	// ErrPermanent: the store refuses in a way that time does not heal, until
	// somebody changes a setting: a wrong password, a missing right, a certificate
	// that is not trusted, a server of another kind. It is an ErrUnavailable, and
	// whoever waits for the store to come back gives up at once.
	ErrPermanent error = permanent{}
	// ErrNotReplicated: the store's replicas did not acknowledge what was
	// asked to be acknowledged. With ErrUnavailable nothing of it is left;
	// without, the outcome is unknown.
	ErrNotReplicated = errors.New("not replicated")
	// ErrNoQuorum: a majority of the stores that a driver is made of did not
	// answer. With ErrUnavailable nothing is left of what was asked; without,
	// the outcome is unknown.
	ErrNoQuorum = errors.New("no quorum")
	// ErrAmnesia: the store may have lost its data, and refused a request with
	// Guard. Nothing was changed.
	ErrAmnesia = errors.New("store may have lost its data")
	// ErrClosed: the driver has been closed.
	ErrClosed = errors.New("driver closed")
)

type permanent struct{}

func (permanent) Error() string { return ErrUnavailable.Error() }

func (permanent) Unwrap() error { return ErrUnavailable }
