package leasehold

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Bounds of keys and options.
const (
	// MaxKey is the length of the longest key: 512 bytes.
	MaxKey = check.MaxKey
	// MaxOwner is the length of the longest name or owner: 256 bytes.
	MaxOwner = check.MaxOwner
	// MaxLabels is the size of all labels together, in bytes of JSON.
	MaxLabels = 1024
	// MinTTL and MaxTTL bound the time to live of a lease: 10 ms to 24 h.
	MinTTL = check.MinTTL
	MaxTTL = check.MaxTTL
)

// Option configures the locks of a client, or one lock. Options of a lock override the options
// of its client; see [New].
type Option func(*config) error

// config is the configuration of a lock. It does not change after it is built.
type config struct {
	session.Terms
	maxWait   time.Duration // noLimit: without a bound
	retry     *Backoff
	lockDelay time.Duration
	name      string
	// reentrantOwner may take the lock again while it holds it; empty without one.
	reentrantOwner string
	labels         map[string]string
	labelText      string // the same, to compare
	minToken       int64
	policy         Policy
	ownPolicy      bool // the policy is not a default
	strictOrder    bool
	passes         int // of a lease inside the process; see WithLocalHandover
	observers      []*Observer
	class          func(key string) string
	ownLog         bool // WithLogger was given
}

// noLimit is a maximum wait without a bound: 0 means to try once.
const noLimit = -1

func defaults() config {
	return config{
		Terms: session.Terms{
			TTL:            30 * time.Second,
			RenewFraction:  1.0 / 3,
			Drift:          timing.Drift,
			ReleaseTimeout: 5 * time.Second,
			MaxOutage:      30 * time.Second,
			Log:            slog.Default(),
		},
		maxWait: noLimit,
		name:    hostName(),
		class:   oneClass,
	}
}

// hostName returns a name of the process, to be shown to people.
func hostName() string {
	host, err := os.Hostname()
	if err != nil || check.Text("hostname", host, 1, 200) != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// with applies opts to a copy of c.
func (c config) with(opts []Option) (config, error) {
	c.ownPolicy = false
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("nil option: %w", ErrInvalid))
			continue
		}
		errs = append(errs, o(&c))
	}
	if err := oneline.Join(errs...); err != nil {
		return c, err
	}
	if c.MaxHold > 0 && c.MinHold > c.MaxHold {
		return c, fmt.Errorf("minimum hold %v is longer than the maximum hold %v: %w", c.MinHold, c.MaxHold, ErrInvalid)
	}
	if c.strictOrder && c.policy == Barging {
		return c, fmt.Errorf("strict order with policy %v: %w", c.policy, ErrInvalid)
	}
	if c.strictOrder && c.retry != nil {
		return c, fmt.Errorf("strict order with retry without a queue: %w", ErrInvalid)
	}
	return c, c.checkLife()
}

// policyFor returns the policy of a lock, with or without readers and writers.
func (c *config) policyFor(readers bool) (Policy, error) {
	switch {
	case readers || c.policy == FIFO || c.policy == Barging:
		return c.policy, nil
	case c.ownPolicy:
		return FIFO, fmt.Errorf("policy %v of a lock without readers and writers: %w", c.policy, ErrInvalid)
	}
	return FIFO, nil // it was a default of the client for other kinds of locks
}

// owner returns the owner that the store shows.
func (c *config) owner() string { return cmp.Or(c.reentrantOwner, c.name) }

// ownedBy returns c for an adopted lease with the given owner; an empty owner changes nothing.
func (c *config) ownedBy(owner string) *config {
	if owner == "" || owner == c.owner() {
		return c
	}
	taken := *c
	taken.name, taken.reentrantOwner = owner, ""
	return &taken
}

// checkLife refuses leases that would expire before they are renewed.
func (c *config) checkLife() error {
	life := c.Life(c.TTL)
	if life <= 0 {
		return fmt.Errorf("TTL %v with drift factor %v leaves no time: %w", c.TTL, c.Drift, ErrInvalid)
	}
	if !c.NoRenewal && float64(c.TTL)*c.RenewFraction >= float64(life) {
		return fmt.Errorf("renewal after the fraction %v of TTL %v is not before the lease's end at %v: %w", c.RenewFraction, c.TTL, life, ErrInvalid)
	}
	return nil
}

// WithTTL sets the time to live of a lease: how long a crashed holder blocks the
// lock, and how long the store may be away without a loss. Default 30 s;
// 10 ms to 24 h.
func WithTTL(d time.Duration) Option {
	return bounded("TTL", d, MinTTL, MaxTTL, func(c *config) { c.TTL = d })
}

// WithRenewFraction sets after which part of the TTL a lease is renewed.
// Default 1/3; above 0 and below 1, and before the lease's end.
func WithRenewFraction(f float64) Option {
	return func(c *config) error {
		if !(f > 0 && f < 1) {
			return fmt.Errorf("renew fraction %v is not between 0 and 1: %w", f, ErrInvalid)
		}
		c.RenewFraction = f
		return nil
	}
}

// WithMaxRenewAttempts gives a lease up as lost after n failed tries of one
// renewal. Default 0: it is tried until the lease's deadline. 0 to 1000.
func WithMaxRenewAttempts(n int) Option {
	return bounded("number of renew attempts", n, 0, 1000, func(c *config) { c.MaxAttempts = n })
}

// WithDriftFactor sets by which part the rate of the store's clock may differ
// from that of the local one. Default 0.01; from 0 to below 1.
func WithDriftFactor(f float64) Option {
	return func(c *config) error {
		if !(f >= 0 && f < 1) {
			return fmt.Errorf("drift factor %v is not at least 0 and below 1: %w", f, ErrInvalid)
		}
		c.Drift = f
		return nil
	}
}

// WithReleaseTimeout bounds how long Release waits for the store. Default 5 s;
// 1 ms to 24 h.
func WithReleaseTimeout(d time.Duration) Option {
	return bounded("release timeout", d, time.Millisecond, MaxTTL, func(c *config) { c.ReleaseTimeout = d })
}

// WithMaxWait bounds how long Lock waits, and not how long its lease lives, as the
// context of Lock does; 0 asks once. For [All] it counts from the call, so that one bound
// holds for all. An error of Lock that it ends matches [context.DeadlineExceeded].
// Default: as long as the context lives. 0, or 1 ms to 24 h.
func WithMaxWait(d time.Duration) Option {
	if d == 0 {
		return func(c *config) error { c.maxWait = 0; return nil }
	}
	return bounded("maximum wait", d, time.Millisecond, MaxTTL, func(c *config) { c.maxWait = d })
}

// WithMaxOutage bounds how long Lock waits for a store that is away: a store that cannot be
// reached, does not answer, or refuses to serve at the moment. The time counts from the store's
// last answer to this client, and also bounds waits in a queue and waits with [WithRetry]. The
// error then matches ErrUnavailable if the request certainly had no effect, and ErrUnknown
// otherwise, as always for a call with a place in the queue. It contains the last failure.
// With 0, Lock fails at the first failed request; with a negative d it waits without this
// bound. A failure that time does not heal, such as a wrong password, always ends a wait at
// once; the error then matches [driver.ErrPermanent].
//
// A TryLock does not wait for the end of an outage. It asks three times in a row if the store
// refuses, and for 10 s, or d if that is less, if the store does not answer, in order to learn
// the outcome of its request. Default 30 s; up to 24 h.
func WithMaxOutage(d time.Duration) Option {
	if d <= 0 {
		return func(c *config) error { c.MaxOutage = max(d, noLimit); return nil }
	}
	return bounded("maximum outage", d, time.Millisecond, MaxTTL, func(c *config) { c.MaxOutage = d })
}

// WithRetry makes Lock ask again after the delays of b instead of waiting in
// the queue, so it may never get a lock for which others queue. The delays of b run between
// answers. During an outage of the store Lock waits as it does in the queue, bounded by
// [WithMaxOutage]. Default: Lock waits in the queue, where the store keeps one.
func WithRetry(b Backoff) Option {
	return func(c *config) error {
		if err := b.check(); err != nil {
			return err
		}
		c.retry = &b
		return nil
	}
}

// WithMaxHold ends the context of a lease with ErrMaxHold after d. The lock then stays closed as
// after the end of the context that Lock was given; see [Mutex.Lock].
// Default: never. 10 ms to 24 h.
func WithMaxHold(d time.Duration) Option {
	return bounded("maximum hold", d, MinTTL, MaxTTL, func(c *config) { c.MaxHold = d })
}

// WithMinHold keeps the lock closed, after a clean release, until d has passed since it
// was granted: for jobs that take less time than the clocks of their hosts differ by.
// Default: not at all. 1 ms to 24 h.
func WithMinHold(d time.Duration) Option {
	return bounded("minimum hold", d, time.Millisecond, MaxTTL, func(c *config) { c.MinHold = d })
}

// WithLockDelay keeps the lock closed for d after a lease expired or was
// broken, not after a release. Default: not at all. 1 ms to 24 h.
func WithLockDelay(d time.Duration) Option {
	return bounded("lock delay", d, time.Millisecond, MaxTTL, func(c *config) { c.lockDelay = d })
}

// WithoutRenewal makes leases end after their TTL unless they are extended.
func WithoutRenewal() Option {
	return func(c *config) error { c.NoRenewal = true; return nil }
}

// WithName sets the name of the holder that inspection shows. Two holders with the same name
// exclude each other. Default: host and process id. 1 to 256
// bytes of UTF-8 without control characters.
func WithName(name string) Option {
	return func(c *config) error {
		c.name = name
		return check.Text("name", name, 1, MaxOwner)
	}
}

// WithReentrantOwner allows an owner to take this lock again while it holds it, also from other
// goroutines, clients and processes. All leases of the owner share one token, and the last
// release frees the lock. A lost lease, or one with an unconfirmed release, counts for as long
// as it is in the store: a new lease of the owner then gets the same token. The owner must be one holder's alone, such as the
// id of a job; it is shown in place of [WithName]. Default: re-entry under the
// lease's context only; see [Lease.Context].
//
// It is an option of one lock: [New] refuses it with ErrInvalid, since it would make
// every lock of the client re-entrant, and so does an [Election]. An owner that reads
// cannot ask to write, nor the other way round: it would wait for itself, so the call
// fails with ErrMismatch. Under the writer's context one may read. 1 to 256 bytes of
// UTF-8 without control characters.
func WithReentrantOwner(owner string) Option {
	return func(c *config) error {
		c.reentrantOwner = owner
		return check.Text("owner", owner, 1, MaxOwner)
	}
}

// WithLabels attaches labels that are shown by inspection: UTF-8 without control characters,
// at most 1 KiB as JSON.
func WithLabels(labels map[string]string) Option {
	return func(c *config) error {
		text, err := check.Labels(labels, MaxLabels)
		c.labels, c.labelText = maps.Clone(labels), text // the caller may change its own
		return err
	}
}

// WithMinToken makes every token greater than n, for a resource that has seen
// n already. Default 0; below 2^53, and at most 24 h ahead of the store's clock
// in microseconds.
func WithMinToken(n int64) Option {
	return bounded("minimum token", n, 0, 1<<53-1, func(c *config) { c.minToken = n })
}

// Policy is the order in which the waiters of a lock are served; see [WithPolicy].
type Policy = driver.Policy

// The policies of locks.
const (
	// FIFO serves waiters in the order of arrival at the store. Readers that are neighbours in
	// the queue are admitted together.
	FIFO = driver.FIFO
	// Barging gives a free lock to the next request, also ahead of waiters, and wakes waiters
	// instead of handing the lock to them: more throughput, without a promise of order.
	Barging = driver.Barging
	// WritersFirst, of an [RWMutex], prefers writers to readers: a waiting writer stops new
	// readers. Writers are served in the order of arrival; readers
	// wait for as long as writers come.
	WritersFirst = driver.WritersFirst
	// ReadersFirst, of an [RWMutex], prefers readers to writers: writers wait for as long as
	// readers come.
	ReadersFirst = driver.ReadersFirst
)

// WithPolicy sets the order in which waiters are served. Every request states its
// policy, so all programs that use a key should use the same one. Default: [FIFO], as far
// as the store keeps a queue; see [WithStrictOrder].
//
// [WritersFirst] and [ReadersFirst] have a meaning for an [RWMutex] only: other kinds
// of lock refuse them with ErrInvalid, and ignore such a default of their client. A store that keeps no queue, such as a quorum, refuses both with
// ErrUnsupported.
func WithPolicy(p Policy) Option {
	return func(c *config) error {
		if p > ReadersFirst {
			return fmt.Errorf("%v is not a policy: %w", p, ErrInvalid)
		}
		c.policy, c.ownPolicy = p, true
		return nil
	}
}

// WithStrictOrder requires that the order of the policy is kept: a store that keeps
// no queue, such as a quorum, refuses the lock with ErrUnsupported. Without it
// waiters of such a store ask from time to time, and the first to ask after a release
// gets the lock. [Barging] and [WithRetry], which keep no order, cannot be combined with it:
// the error matches ErrInvalid. Default: order where the store keeps it.
func WithStrictOrder() Option {
	return func(c *config) error { c.strictOrder = true; return nil }
}

// WithLogger sets the logger of events that an operator must see: a loss, an outage of
// the store that lasts for a second, its end, and something that could not be cleaned up.
// Default: [slog.Default] at the call of [New]. A logger of [slog.DiscardHandler] is silent.
//
// With this option the client also logs a lease that is renewed although the program has dropped
// its [Lease] and its context and so cannot release it: once for each lease, with the place
// where it was taken.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) error {
		if log == nil {
			return fmt.Errorf("nil logger: %w", ErrInvalid)
		}
		c.Log, c.ownLog = log, true
		return nil
	}
}

func bounded[T cmp.Ordered](name string, v, low, high T, set func(*config)) Option {
	return func(c *config) error {
		set(c)
		return check.Range(name, v, low, high)
	}
}

// MaxLocalHandover is the greatest number of [WithLocalHandover].
const MaxLocalHandover = 10_000

// WithLocalHandover hands a lock on inside the process. Calls of Lock for one key by one
// client then wait in a line of the process, in the order of their arrival, and one request
// waits in the store's queue for all of them. A release passes the lease to the next call
// without a request to the store. Every grant is a lease of its own with its own token,
// greater than every token given before.
//
// While other processes wait in the store, the lease is passed on at most n times. Then it is
// released, and the line asks for it again, behind the other processes. So processes take
// turns of up to n + 1 grants, and the order of arrival is kept within each process only.
// While no other process waits, on Redis, the lease stays until the line is empty. Other
// stores do not report whether others wait, and the lease is passed on at most n times.
//
// The option applies to mutexes and to the write side of read-write locks. Locks share a
// line if their options are equal. It has no effect for
//
//   - locks with [WithReentrantOwner], [WithStrictOrder], [WithRetry], [WithMinHold],
//     [WithoutRenewal], [WritersFirst] or [ReadersFirst],
//   - elections,
//   - waits that [ObserveWait] shows,
//   - stores that keep no queue, such as a quorum, or mint no tokens.
//
// A lease that the store has not confirmed for a second is confirmed before it is passed on.
// If the store does not answer within another second, the lease is passed on unconfirmed. So
// after a store has lost its data, two processes may hold the lock for up to two seconds, and
// the tokens of this process may be smaller than those of the other process.
//
// A TryLock is refused while calls of its client wait in the line. A lease that was extended
// beyond its TTL is released instead of passed on. [Mutex.Adopt] of a detached lease may
// return a greater token, since tokens are reserved ahead.
//
// The leases of one turn share their [Lease.ID], and inspection shows the last token that is
// reserved for the turn. [Client.Break] of the id ends the current lease, and the rest of the
// line asks the store again. The line also asks the store again after a lease that was pinned
// by a transaction (see package postgresdriver).
//
// Default: 0, every Lock waits in the store's queue itself. 1 to 10 000. A value of 100 to
// 1000 saves most requests. A process keeps the lock for up to n + 1 times as long as one
// holder does.
func WithLocalHandover(n int) Option {
	return bounded("local hand-over", n, 1, MaxLocalHandover, func(c *config) { c.passes = n })
}
