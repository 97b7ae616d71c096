// Package redisdriver keeps locks on Redis and Valkey through go-redis. It supports every
// kind of lock.
//
//	store, err := redisdriver.New(client) // the application's *redis.Client
//	…
//	client, err := leasehold.New(store)
//
// [New] makes a driver from the application's client, [Open] from a URL.
// It works with a single server, with Sentinel, and with Redis Cluster, and needs
// Redis 7.0 or Valkey 7.2.
//
// It uses connections of its own, so that a renewal never waits for the application: two
// pools, one for renewals and one for everything else, and one connection for
// notifications. On a cluster each node that keeps locks has as many, and only the options
// of the cluster's client are used. The renewals' connection is made with
// the first grant, so a server that later refuses connections loses no lease.
//
// The server's user needs the rights
//
//	~leasehold:* &leasehold:* +@connection +@scripting +@read +@write +@pubsub +time
//
// and, on a cluster, +cluster|slots. Without the right to publish or to subscribe,
// waiters poll, and holders learn of a break when they renew. With replicas, +info lets a
// request fail at once when too few of them are connected.
package redisdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// Driver is a store on Redis or Valkey, with every kind of lock. It is made by [New] or [Open],
// and is safe for concurrent use. It has the methods of [driver.Driver], [driver.Watcher],
// [driver.Glancer], [driver.Breaker], [driver.Checker], [driver.Marker] and
// [driver.DeadlineAware].
//
// Acquire and Release send one script call each, and Renew sends one for many leases, on
// connections of its own. With [WithReplicas] a grant or a renewal is confirmed when the
// replicas have it. Watch subscribes; its address is empty until the server has confirmed the
// subscription, and while the connection is lost. List uses SCAN, in a cluster on each node in
// turn, so a page may be empty; it lists the locks of other libraries too, unless the prefix of
// [WithPrefix] is empty. Check sends INFO, CONFIG GET, CLUSTER INFO, TIME and SCAN, and reports
// a command that the user may not run as a finding. Close closes the connections that the
// driver has made, but not the client that was given to [New].
type Driver struct{ *store }

// store is the common part of the drivers of both Redis clients.
type store = redisroom.Store

// Option changes a default of a driver.
type Option func(*options)

type options = redisroom.Options

// WithPrefix sets the prefix of every key, "leasehold:" by default, at most 256 bytes.
// With an empty prefix a mutex is a string under exactly its key, which excludes other
// libraries that use SET with NX. Each prefix counts its own tokens, so use one prefix for one lock:
// tokens of "app:k" by an empty prefix and of "k" by "app:" do not rise together.
func WithPrefix(prefix string) Option { return func(o *options) { o.Prefix = prefix } }

// WithTimeout bounds one request, connecting included: 10 ms to a minute, 2 s by default.
// After a timeout the outcome is unknown.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.Timeout = d } }

// WithReplicas makes a grant or a renewal count only once k replicas have acknowledged
// it, so that a failover to one of them keeps it: k is the number of all replicas that
// may be promoted, 1 to 100. The driver waits for them for at most timeout, 1 ms to half
// of [WithTimeout]. Without this option it does not ask replicas. While fewer than k are
// connected, for example after a failover, no lock can be acquired and leases expire.
//
// A grant that is not acknowledged is undone, and the error matches
// [driver.ErrNotReplicated]. If too few replicas are connected, the driver does not even
// try. A renewal that is not acknowledged is not confirmed: the library repeats it until
// the lease is over. A waiter that is handed the lock asks for the acknowledgement before
// it enters, which takes one more round trip. If the server does not offer WAIT, or not
// to this user, the first request fails with [errors.ErrUnsupported].
func WithReplicas(k int, timeout time.Duration) Option {
	return func(o *options) { o.Acks = &redisroom.Acks{Replicas: k, Timeout: timeout} }
}

// with returns the options changed by opts, and checks them.
func with(o options, opts []Option) (options, error) {
	for _, opt := range opts {
		opt(&o)
	}
	return o, o.Check()
}

// New returns a driver that connects as client does: to the same servers, with the same
// credentials, TLS configuration and buffers. It does not use the client's retries,
// timeouts, limiter, caching and hooks, nor the client itself, and does not close it.
// Only a client of [redis.NewFailoverClient] must stay open, because it has the addresses
// of the sentinels. The driver asks these every 2 s for the primary, with TLS every 10 s,
// so that it soon leaves a primary that was replaced and has not noticed it.
//
// The client must be a [*redis.Client] or a [*redis.ClusterClient]; otherwise the error
// matches [driver.ErrInvalid]. New sends no request.
func New(client redis.UniversalClient, opts ...Option) (*Driver, error) {
	o, err := with(redisroom.Defaults(), opts)
	if err != nil {
		return nil, fmt.Errorf("redisdriver: %w", err)
	}
	var connect func() redisroom.Client
	switch c := client.(type) {
	case *redis.Client:
		if c != nil {
			connect = func() redisroom.Client { return newSingle(*c.Options(), o.Timeout) }
		}
	case *redis.ClusterClient:
		if c != nil {
			connect = clusterOf(*c.Options(), o.Timeout)
		}
	case nil:
	default:
		return nil, fmt.Errorf("redisdriver: a %T cannot keep locks, want a *redis.Client or *redis.ClusterClient: %w", client, driver.ErrInvalid)
	}
	if connect == nil {
		return nil, fmt.Errorf("redisdriver: client is nil: %w", driver.ErrInvalid)
	}
	return &Driver{redisroom.New(connect(), connect(), o)}, nil
}

// newSingle makes a client of our own from the options of another.
func newSingle(opt redis.Options, timeout time.Duration) *adapter {
	c := &adapter{timeout: timeout, base: opt, conns: &interrupt.Conns{DropSilent: true, Greets: true}}
	if opt.Dialer == nil {
		opt.Dialer = redis.NewDialer(&opt)
	}
	if opt.Addr == behindSentinels {
		search, every := shareRefusals(opt.Dialer), askSentinels
		if opt.TLSConfig != nil {
			every = askSentinelsTLS
		}
		opt.Dialer = search
		c.batch.Start(func(ctx context.Context) { c.watchPrimary(ctx, search, every) })
	}
	opt.Dialer, opt.OnConnect = c.dialer(opt.Dialer), greeted(c.conns, opt.OnConnect)
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ContextTimeoutEnabled = true
	// The deadline of the call comes first.
	opt.ReadTimeout, opt.WriteTimeout = slack(timeout), slack(timeout)
	opt.DialTimeout, opt.PoolTimeout = timeout/2, timeout/2
	opt.MinIdleConns, opt.MaxActiveConns = 0, 0
	opt.Limiter, opt.ClientSideCache, opt.ClientSideCacheConfig = nil, nil, nil
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.single = redis.NewClient(&opt)
	c.batch.Lanes, c.batch.One, c.batch.Many = lanes, c.one, c.many
	return c
}

// slack returns a timeout that never ends before the call's own deadline, since go-redis reads
// its clock only now and then.
func slack(timeout time.Duration) time.Duration { return timeout + time.Second }
