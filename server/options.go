package server

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/sockets"
	"github.com/leasehold-go/leasehold/server/operations"
)

// Option configures a service.
type Option func(*config) error

// config is the configuration of a service. It is not changed after New.
type config struct {
	log       *slog.Logger
	auth      auth.Authenticator
	hosts     []string // that are allowed without auth, in lower case
	observers []Observer
	page      PageMode
	storeName string // for people
	audit     io.Writer
	tracer    Tracer // nil for none

	maxBody      int64
	maxTTL       time.Duration
	maxWait      time.Duration
	storeTimeout time.Duration

	headerTimeout, bodyTimeout time.Duration
	maxConnections             int
	undoOnReset                bool
	confirmWithin              time.Duration

	perClient, perKey int // waiters

	operations operations.Config // New sets the rest
}

func defaults() config {
	return config{
		log:          slog.New(slog.DiscardHandler),
		maxBody:      64 << 10,
		maxTTL:       check.MaxTTL,
		maxWait:      time.Minute,
		storeTimeout: 5 * time.Second,

		headerTimeout: headerTimeout,
		bodyTimeout:   bodyTimeout,

		maxConnections: mostConnections(),
		undoOnReset:    true,
		confirmWithin:  confirmWithin,

		perClient: 20_000,
		perKey:    20_000,

		operations: operations.Config{
			Operation: operations.Simulate(15 * time.Second), TTL: 30 * time.Second, Wait: 30 * time.Second, Most: 1000,
		},
	}
}

// WithLogger sets the logger for events that an operator must see. Default: no log.
func WithLogger(log *slog.Logger) Option {
	return given("logger", log != nil, func(c *config) { c.log = log })
}

// WithAuthenticator sets the authenticator of clients. Default: no authentication, and every
// client has all rights.
func WithAuthenticator(a auth.Authenticator) Option {
	return given("authenticator", a != nil, func(c *config) { c.auth = a })
}

// WithObserver adds an observer, which is called at the end of every request. It may be given
// several times.
func WithObserver(o Observer) Option {
	return given("observer", o != nil, func(c *config) { c.observers = append(c.observers, o) })
}

// WithTracer sets the tracer, which makes spans. Default: no spans.
func WithTracer(t Tracer) Option {
	return given("tracer", t != nil, func(c *config) { c.tracer = t })
}

// WithMaxBody bounds the bodies of requests, in bytes. Default 64 KiB; 1 KiB to
// 64 MiB.
func WithMaxBody(n int64) Option {
	return bounded("maximum body", n, 1<<10, 64<<20, func(c *config) { c.maxBody = n })
}

// WithMaxTTL bounds the time to live that clients may ask for, and the lock delay, which
// begins at a loss: so how long a client that has died blocks a lock. How long a lock
// is kept closed after a release is bounded by 24 h. Default, and maximum, 24 h; at least
// 10 ms.
func WithMaxTTL(d time.Duration) Option {
	return bounded("maximum TTL", d, check.MinTTL, check.MaxTTL, func(c *config) { c.maxTTL = d })
}

// WithMaxWait bounds how long an answer is held back for a client that waits, which then asks
// again. Default 1 min, which most proxies allow; 1 s to 24 h.
func WithMaxWait(d time.Duration) Option {
	return bounded("maximum wait", d, time.Second, 24*time.Hour, func(c *config) { c.maxWait = d })
}

// WithStoreTimeout bounds the calls of the store, after which the outcome of a request is
// unknown. Default 5 s; 10 ms to 5 min.
func WithStoreTimeout(d time.Duration) Option {
	return bounded("store timeout", d, 10*time.Millisecond, 5*time.Minute, func(c *config) { c.storeTimeout = d })
}

// WithMaxWaiters bounds how many requests may wait at a time, including places in queues that
// are kept without a request: of one client, which is a principal, or an address without
// authentication, and for one lock. Further requests are answered with 429. Default 20 000 each;
// 1 to 1 000 000.
func WithMaxWaiters(perClient, perKey int) Option {
	return func(c *config) error {
		c.perClient, c.perKey = perClient, perKey
		return cmp.Or(check.Range("maximum of waiters per client", perClient, 1, 1_000_000), check.Range("maximum of waiters per lock", perKey, 1, 1_000_000))
	}
}

// WithMaxConnections bounds how many connections are served at a time. The next 32 connections
// are answered with 503, so that a probe notices, and further ones closed. Default: nine tenths
// of the descriptors that the process may have; 1 to 1<<30.
func WithMaxConnections(n int) Option {
	return bounded("maximum of connections", n, 1, 1<<30, func(c *config) { c.maxConnections = n })
}

// mostConnections returns the default of WithMaxConnections, which leaves some descriptors for
// the store.
func mostConnections() int {
	if n := sockets.Descriptors(); n > 0 {
		return max(n-max(n/10, 2*spare), 1)
	}
	return 1 << 30
}

// WithUndoOnReset sets whether the service gives a lock back if the connection is reset within a
// second after the answer to a long poll: a reset usually means that the client died before it
// read the grant. Default true; false is for a service behind a balancer that resets connections
// whose answers it has read.
func WithUndoOnReset(undo bool) Option {
	return func(c *config) error {
		c.undoOnReset = undo
		return nil
	}
}

// WithOperation sets the operation that is executed under /api/locks. Default: a pause of 15 s.
func WithOperation(op operations.Operation) Option {
	return func(c *config) error {
		if op.Do == nil || op.Length < 0 || op.Length > 23*time.Hour {
			return fmt.Errorf("operation without a function, or with a length of %v that is not between 0 and 23h: %w", op.Length, driver.ErrInvalid)
		}
		c.operations.Operation = op
		return nil
	}
}

// WithOperationTTL sets the time to live of the leases of operations, which are
// renewed while they run. Default 30 s; 10 ms to 24 h.
func WithOperationTTL(d time.Duration) Option {
	return bounded("TTL of operations", d, check.MinTTL, 24*time.Hour, func(c *config) { c.operations.TTL = d })
}

// WithOperationWait bounds how long an operation of the pattern fair waits for
// its turn. Default 30 s; 1 ms to 24 h.
func WithOperationWait(d time.Duration) Option {
	return bounded("wait of operations", d, time.Millisecond, 24*time.Hour, func(c *config) { c.operations.Wait = d })
}

// WithMaxOperations bounds how many operations run, or wait to, at a time.
// Default 1000; 1 to 1 000 000.
func WithMaxOperations(n int) Option {
	return bounded("maximum of operations", n, 1, 1_000_000, func(c *config) { c.operations.Most = n })
}

// WithQuorum sets the store of operations of the pattern redlock, which Close closes. Default:
// the service's own store.
func WithQuorum(d driver.Driver) Option {
	return given("quorum", d != nil, func(c *config) { c.operations.Quorum = d })
}

// given sets a value that must not be nil.
func given(name string, is bool, set func(*config)) Option {
	return func(c *config) error {
		if !is {
			return fmt.Errorf("nil %s: %w", name, driver.ErrInvalid)
		}
		set(c)
		return nil
	}
}

// bounded sets a value between two bounds.
func bounded[T cmp.Ordered](name string, v, low, high T, set func(*config)) Option {
	return func(c *config) error {
		set(c)
		return check.Range(name, v, low, high)
	}
}
