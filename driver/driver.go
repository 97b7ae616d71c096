// Package driver is the contract between the leasehold library and a store.
//
// A store keeps rooms. A room is the state of all locks of one key: its holders and its
// waiters. A holder has the room exclusively or shared, for a time; a request that cannot
// be granted may queue. Every kind of lock is a request to the same room: a mutex asks
// exclusively, a reader shared, and a semaphore's permit shared with a limit and a
// weight.
//
// A [Driver] has three verbs that never wait. Each is one atomic step in the store and
// idempotent for its lease id. A store offers more by implementing [Watcher],
// [Inspector], [Breaker], [Checker] or [Marker], and reports missing features by [Limited].
// A store that has only set-if-absent, renew and delete becomes a driver by
// [FromBasic]; one that replaces records atomically by package
// [github.com/leasehold-go/leasehold/driver/roomdriver]. A wrapper around a driver embeds
// [Wrapper], which keeps the optional interfaces.
//
// An error from a driver means that the store did not answer, or that its answer is
// unusable: the outcome is unknown, unless the error matches a more definite sentinel of
// this package. An error never means "held by another". A driver returns the raw error
// of its client, wrapped with a sentinel where one fits; the library adds the verb and
// the key.
//
// Implementations are safe for concurrent use. Package
// [github.com/leasehold-go/leasehold/driver/drivertest] holds the conformance suite that
// every implementation passes.
package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Mode is the way in which a holder has the room.
type Mode uint8

const (
	// Exclusive holders have the room for themselves, except for further leases of the
	// same re-entrant owner.
	Exclusive Mode = iota
	// Shared holders have the room together with other shared holders, up to a limit.
	Shared
)

// Policy defines which waiters a request must not overtake.
type Policy uint8

const (
	// FIFO overtakes no waiter that came earlier.
	FIFO Policy = iota
	// Barging overtakes all waiters: it takes a free room ahead of the queue. If it has
	// to wait, it waits in arrival order and is woken instead of being handed the room,
	// so another barging request may take the room first.
	Barging
	// WritersFirst serves exclusive waiters before shared ones.
	WritersFirst
	// ReadersFirst serves shared waiters before exclusive ones.
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

// MaxPlaces is the greatest limit and the greatest weight: the greatest int on every
// platform. A store refuses more with [ErrInvalid].
const MaxPlaces = 1<<31 - 1

// MaxNumbered is the greatest limit with which the places of a room have numbers.
const MaxNumbered = 1024

// Places are the numbers of places, from 0 on, ascending, with commas between them, such as
// "0,3". It is empty for a holder without numbers.
type Places string

// PlacesOf returns numbers as Places.
func PlacesOf(numbers []int) Places {
	var b []byte
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return Places(b)
}

// Numbers returns the numbers, and skips other text.
func (p Places) Numbers() []int {
	if p == "" {
		return nil // at once, since most answers have none
	}
	var numbers []int
	for word := range strings.SplitSeq(string(p), ",") {
		if n, err := strconv.Atoi(word); err == nil && n >= 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// Request asks for a lease in a room.
type Request struct {
	// Key names the room: 1 to 512 bytes of UTF-8 without control characters.
	Key string
	// ID is the lease id, chosen by the caller and unique per acquisition: 1 to 64 bytes
	// of [A-Za-z0-9_.-], the first a letter or digit. Asking again with the same id has
	// the effect and the answer of asking once.
	ID string
	// Owner names the caller, for people to read. At most 256 bytes, without control
	// characters.
	Owner string
	// Reenter makes Owner an identity: the request is granted in a room that the same
	// re-entrant owner holds exclusively, and shares its token. If the owner holds the
	// room in the other mode, the request is refused with ErrMismatch, since it would
	// wait for itself.
	Reenter bool
	// Labels are shown by inspection.
	Labels map[string]string
	// Since is the caller's wall clock. It is only for inspection.
	Since time.Time

	Mode   Mode
	Policy Policy
	// Ordered insists on the policy's order: a store without a queue refuses the request,
	// a store with one ignores the field.
	Ordered bool
	// Limit bounds the sum of the weights of shared holders; 0 is no limit, [MaxPlaces]
	// the greatest. All holders and waiters of a room state the same limit.
	Limit int
	// Resize sets the limit in force instead of asking for a lease. Holders keep their
	// leases, and no request is granted before there is room by the new limit. A waiter
	// that asks for more than the new limit loses its place when its turn comes. The
	// answer is Resized, or Gone if no holder or waiter uses the room shared, or the id is
	// rejected (Ref.RejectIDFor): a request that is late must not undo a later one.
	Resize bool
	// Downgrade makes an exclusive lease with this id a shared one, and grants no new
	// lease. The answer is Granted, or Gone if there is no lease of this id, so the
	// request has no effect after the end of the lease. Mode is Shared.
	Downgrade bool
	// Weight is a shared holder's part of the limit, at most [MaxPlaces]; 0 counts as 1.
	Weight int

	// TTL is the time to live of the lease, which the store counts from the grant.
	TTL time.Duration
	// TicketTTL is the time to live of the ticket with which a request queues; asking
	// again or renewing keeps it alive. With 0 the request is a try and never queues. A
	// store without a queue answers Busy either way.
	TicketTTL time.Duration
	// ConfirmWindow is the time in which a handed-over grant must be confirmed, by a
	// renewal or by asking again, before it goes to the next waiter. If only the first
	// waiter blocks a request that would fit, the store calls the first waiter, which has
	// the same time to ask. It is above 0 if TicketTTL and HintAddress are given.
	ConfirmWindow time.Duration
	// HintAddress is the address to which the store sends hints, from
	// [Subscription.Address]. A ticket without one is never handed the room: it takes the
	// room by asking, and its caller asks often enough to keep the ticket alive. Asking
	// again moves a ticket or lease to the address of the later request.
	HintAddress string
	// LockDelay keeps the room closed for this long after the lease expired or was
	// broken, and after a hand-over that was not confirmed, since the waiter may have
	// begun to work. It does not apply after a release.
	LockDelay time.Duration
	// MinToken makes the token of the grant greater than this value, except for a
	// re-entry, which keeps the token of its owner. A value more than 24 h ahead of the
	// store's clock in µs is refused with ErrInvalid.
	MinToken int64
	// Visit names the process or call that asks, if several may ask with one ID. A
	// Release with the same Visit undoes only its own visit's requests, and never ends a
	// lease that was reported to another visit. Repetitions of a request carry the same
	// Visit. It is a path of words between slashes, at most 128 bytes of [A-Za-z0-9_./-].
	// A caller that asks on behalf of a visit appends a word of its own, and the name of a
	// visit includes the visits below it. A ticket belongs to the visit of its last
	// request. A lease belongs to the common path of all visits that have asked for it; if
	// that is empty, or if a request had no name, it belongs to no visit.
	Visit string
	// Guard refuses the request with ErrAmnesia if the store has no token of the key and
	// no mark: it may have lost its data, and with it a live lease. Only a [Marker]
	// supports it. A store may look at its mark once a minute only, in a way that a loss of
	// its data undoes.
	Guard bool
	// SingleUseID marks an id that the store rejects, with Gone, for a while after its
	// release: for Ref.RejectIDFor, if that Ref has SingleUseID too. All requests of one
	// id agree in it. It is for callers that cannot know which of their requests are
	// repetitions; other requests of the same room do not pay for it. A store may
	// remember a hash of 64 bits in place of an id.
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
	// Visit in a Renew announces that a caller of this name will learn that it has the
	// lease or the ticket: as after an Acquire, the lease belongs to the common path of
	// this visit and its previous visits, and the ticket to this visit. So an earlier
	// visit that gives up cannot undo a lease that a later renewal has reported. A caller
	// that undoes by visits must renew by them, too. A renewal without a visit leaves this
	// unchanged; a service treats it as one of an unnamed client.
	//
	// Visit in a Release ends only a lease or ticket that belongs to this visit or to
	// one below it. If it belongs to another visit, or to several, the answer is Busy and
	// the store is unchanged: another caller may have received the grant. See
	// Request.Visit.
	Visit string
	// Token raises the token of a lease to at least this value (Renew), and so every
	// later token of the key. So it reserves the tokens between the two for a caller that
	// has the room exclusively. Exclusive leases of one owner share one token. A value more
	// than 24 h ahead of the store's clock in µs is ignored: the reply has the token.
	Token int64
	// Level makes Token the token of the lease even if that has a greater one (Renew).
	// Every later token is above both. The caller must be certain that no client has
	// received the greater token.
	Level bool
	// KeepClosed keeps the room closed for this long after the release (Release).
	KeepClosed time.Duration
	// RejectIDFor makes the store reject the id for this long after the release
	// (Release), so that an Acquire that is still on its way has no effect, one with
	// Resize included. It is set when an Acquire of this id was not answered.
	RejectIDFor time.Duration
	// SingleUseID limits RejectIDFor to requests with SingleUseID (Release).
	SingleUseID bool
	// Uncontended repeats Reply.Uncontended of the last answer, or is a guess: with it a
	// store may try a shorter way first (Renew, Release).
	Uncontended bool
}

// State is the answer of the store.
type State uint8

const (
	// Gone: no lease and no ticket of this id is known (Renew, Release), or the id is
	// rejected (Acquire, after a Release with RejectIDFor).
	Gone State = iota
	// Busy: not granted, and not queued.
	Busy
	// Queued: not granted, a ticket is kept.
	Queued
	// Granted: the lease is held for the full TTL, which the store counts from a moment
	// after the request was sent.
	Granted
	// Released: the lease existed and has ended by this call.
	Released
	// Left: the ticket existed and has ended by this call.
	Left
	// Resized: the limit in force was changed (Acquire with Resize).
	Resized
)

// Reply is a store's answer to one request.
type Reply struct {
	State State
	// Token is the fencing token of a grant: greater than every earlier token of the key,
	// below 2^53. It is 0 if the store has no tokens, or could not read it for a renewal.
	Token int64
	// Holds is the number of leases that the same owner has in the room after a grant,
	// this one included.
	Holds int
	// Places are, with Granted, the numbers of the places that a shared holder has below a
	// Limit of at most [MaxNumbered]: as many as its Weight, ascending, from 0 on. They are
	// the lowest that no other holder has, and stay the same for the life of the lease. After
	// the limit was lowered, a number may lie above it. A store with limits has numbers.
	Places Places
	// Position is the place in the queue, 1 for the head.
	Position int
	// RetryAfter is the time after which asking again is useful because the obstacle may
	// have ended. It is set for Busy, for the first waiter, and for the second waiter
	// while the first is called (see Request.ConfirmWindow). 0 is unknown: a waiter
	// then asks when its ticket needs it.
	RetryAfter time.Duration
	// Holders shows some holders, at most 8, the longest-lived first.
	Holders []Holder
	// Clock is the store's clock when it answered, since an origin of its own. It is
	// compared only with other readings of the same store. 0 means that there is no
	// reading.
	Clock time.Duration
	// Reason is why the lease was broken, with Gone and Broken.
	Reason string
	// Broken is set with Gone when the lease was broken by force.
	Broken bool
	// Uncontended may be set with Granted if there is no other holder and no waiter. It
	// can make a later Renew or Release cheaper, see Ref.Uncontended. A process that hands
	// a lease on inside itself does so without a bound only while it is set.
	Uncontended bool
	// Wanted is set with Granted if a request waits in the queue, and the lease had been
	// granted before this call. A store without a queue never sets it.
	Wanted bool
	// Replayed is set with Granted if the lease was granted and confirmed before this
	// Acquire, which repeats one; and with Gone, for SingleUseID, if the id was released
	// before.
	Replayed bool
	// InFlight may be set with Granted and Busy where another process asked the store for
	// us, and was not answered at first: a request of this id may still be on its way. The
	// caller that releases the lease, or has been refused, has the store reject the id
	// (Ref.RejectIDFor).
	InFlight bool
}

// Holder describes a holder of a room.
type Holder struct {
	// ID is the lease id.
	ID string
	// Owner is the request's, for people to read.
	Owner string
	Mode  Mode
	// Weight is a shared party's part of the limit.
	Weight int
	// Places are the Reply's Places of the lease.
	Places Places
	// Token is the fencing token of the lease, or 0.
	Token int64
	// Since is the request's: when it began, by the clock of its process.
	Since time.Time
	// Remaining is the time until the lease ends unless it is renewed.
	Remaining time.Duration
	// Labels are the request's labels.
	Labels map[string]string
	// Confirmed is false while a handed-over grant awaits its first renewal.
	Confirmed bool
	// Foreign marks another library's lock.
	Foreign bool
}

// Driver is implemented by every store.
type Driver interface {
	// Acquire asks for a lease and answers Granted, Busy, Queued, Gone or Resized. If an
	// exclusive holder asks again in Shared mode with the same id, its lease becomes
	// shared in the same step (a downgrade, which Request.Downgrade confines to holders);
	// this is refused with ErrMismatch if its owner has several leases in the room.
	// Asking for Exclusive with the id of a shared lease has no effect.
	Acquire(ctx context.Context, req Request) (Reply, error)

	// Renew renews leases, confirms handed-over grants, and keeps tickets alive; it
	// grants a ticket whose turn has come. A store without a queue grants a waiter with a
	// known id if it can, and otherwise answers Busy. Renew never creates a lease, and
	// never shortens one: a renewal that was delayed must not undo a longer one that
	// overtook it.
	//
	// each is called once for every ref, by its index, as soon as the answer is known,
	// never concurrently. A store of several nodes reports the answers of a fast node
	// without waiting for a slow one. Renew returns after the last call of each.
	Renew(ctx context.Context, refs []Ref, each func(i int, reply Reply, err error))

	// Release ends a lease, or leaves the queue, and answers Released, Left, Gone or
	// Busy. It hands the room to the next waiters in the same step.
	Release(ctx context.Context, ref Ref) (Reply, error)

	// Close ends the driver's own work. Calls under way end soon, and later calls fail
	// with ErrClosed.
	Close() error
}

// HintKind is the subject of a hint.
type HintKind uint8

const (
	// HintAsk: asking again is useful, after Hint.RetryAfter.
	HintAsk HintKind = iota
	// HintGranted: the room was handed to this ticket and awaits
	// confirmation.
	HintGranted
	// HintBroken: a lease or ticket was broken by force. It goes to all subscriptions of
	// the store, since the store need not know where its holder listens.
	HintBroken
	// HintResync: hints may have been lost; all waiters at this address ask.
	HintResync
)

// Hint wakes a waiter, or informs a holder that its lease was broken. Hints may be lost,
// late or doubled; only speed depends on them.
type Hint struct {
	Kind HintKind
	// ID is the ticket or lease that is meant; empty with HintResync.
	ID string
	// Key names the room of a HintBroken, in which the id is meant. It is empty with
	// other kinds.
	Key string
	// Token, Clock and ConfirmWindow describe a grant: its fencing token, the
	// store's clock at the grant, and the window in which it is to be
	// confirmed, counted from Clock.
	Token         int64
	Clock         time.Duration
	ConfirmWindow time.Duration
	// Places are the Reply's Places of the grant.
	Places Places
	// RetryAfter is the delay of an ask.
	RetryAfter time.Duration
	// Reason is why the lease was broken.
	Reason string
}

// Subscription is a live delivery of hints.
type Subscription interface {
	// Address is the HintAddress for requests. It is empty while the store cannot
	// deliver.
	Address() string
	// Close ends the delivery and waits for a call of the function under way.
	Close() error
}

// Watcher is implemented by stores that can wake waiters.
type Watcher interface {
	// Watch calls f for every hint sent to the subscription's address, and for every
	// HintBroken of the store, one at a time. f must not block, and must not close the
	// subscription.
	Watch(f func(Hint)) (Subscription, error)
}

// Waiter describes a ticket in the queue.
type Waiter struct {
	// ID is the id of the ticket, and of the lease that follows it.
	ID string
	// Owner is the request's, for people to read.
	Owner string
	Mode  Mode
	// Weight is the part of the limit that a shared party will take.
	Weight int
	// Position is the place in the queue, 1 for the head.
	Position int
	// Since is the request's: when it began, by the clock of its process.
	Since time.Time
	// Remaining is the time until the ticket expires unless it is kept alive.
	Remaining time.Duration
	// Labels are the request's labels.
	Labels map[string]string
}

// Snapshot is one consistent picture of a room.
type Snapshot struct {
	Key string
	// Holders are in no particular order.
	Holders []Holder
	// Waiters are in the order in which they will be served.
	Waiters []Waiter
	// Token is the last token minted, 0 if unknown.
	Token int64
	// Limit is the limit in force, or 0.
	Limit int
	// Closed is for how much longer the room stays closed without a holder.
	Closed time.Duration
	// Line is how many calls wait in the process that looks, before they stand in the
	// queue. The library sets it, a store does not.
	Line int
}

// Inspector is implemented by stores that can show their rooms.
type Inspector interface {
	// Inspect returns the picture of a room; an empty room is no error.
	Inspect(ctx context.Context, key string) (Snapshot, error)
	// List returns the keys with the given prefix that have holders or waiters, in no
	// particular order, and the cursor of the next page, empty after the last. A page may
	// be empty. A key that is in use during the whole listing is returned at least once.
	List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error)
}

// Breaker is implemented by stores in which a lease can be ended by force.
type Breaker interface {
	// Break ends the lease or ticket id, keeps the room closed for the LockDelay of its
	// request, and returns the reason to the holder's next request: 1 to 256 bytes of
	// UTF-8 without control characters. A [Watcher] sends HintBroken to all its
	// subscriptions, also in other processes. Break answers Released, Left, or Gone if id
	// does not exist: it never ends the lease of another id.
	Break(ctx context.Context, key, id, reason string) (Reply, error)
}

// Marker is implemented by stores that can detect a loss of their data, which a quorum of
// stores requires. A store has one mark, which never expires: it is lost only with the
// data.
type Marker interface {
	// Marked returns the mark, with the rest of its quarantine. ok is false without a
	// mark.
	Marked(ctx context.Context) (mark Mark, ok bool, err error)
	// Reserve reserves a store without a mark for a process that is about to mark it,
	// under the name by of [A-Za-z0-9], for life at most. It reports whether the store is
	// now reserved under this name: not if it carries a mark, or is reserved under
	// another name. A reservation is lost with the data.
	Reserve(ctx context.Context, by string, life time.Duration) (bool, error)
	// Mark sets the mark if there is none; an existing mark stays unchanged. If by is
	// not empty, the store accepts the mark only while it is reserved under this name,
	// and therefore has kept its data since.
	Mark(ctx context.Context, mark Mark, by string) error
}

// Mark is the sign of a store that has not lost its data.
type Mark struct {
	// Name is stored for the quorum: its identification of the member. At most 64
	// bytes of [A-Za-z0-9.-].
	Name string
	// Quarantine is for how much longer the store refuses guarded requests of unknown
	// keys.
	Quarantine time.Duration
}

// Errors that a driver wraps where they fit.
var (
	// ErrInvalid: the request can never succeed as it stands.
	ErrInvalid = errors.New("invalid")
	// ErrMismatch: the room is in use in a way that contradicts the request (another
	// limit), or the key holds data of another program. The request had no effect.
	ErrMismatch = errors.New("mismatch")
	// ErrUnavailable: the request certainly had no effect. The store could not be
	// reached, or refused to serve or to authenticate.
	ErrUnavailable = errors.New("store unavailable")
	// ErrPermanent: the store refuses until a setting is changed: a wrong password, a
	// missing right, a certificate that is not trusted, a server of another kind. It is
	// an ErrUnavailable, and waits for an unavailable store give up at once.
	ErrPermanent error = permanent{}
	// ErrNotReplicated: the store's replicas did not acknowledge as requested. With
	// ErrUnavailable the request left no trace; otherwise the outcome is unknown.
	ErrNotReplicated = errors.New("not replicated")
	// ErrNoQuorum: a majority of the stores of a driver did not answer. With
	// ErrUnavailable the request left no trace; otherwise the outcome is unknown.
	ErrNoQuorum = errors.New("no quorum")
	// ErrAmnesia: the store may have lost its data, and refused a request with Guard,
	// which had no effect.
	ErrAmnesia = errors.New("store may have lost its data")
	// ErrClosed: the driver has been closed.
	ErrClosed = errors.New("driver closed")
)

type permanent struct{}

func (permanent) Error() string { return ErrUnavailable.Error() }

func (permanent) Unwrap() error { return ErrUnavailable }
