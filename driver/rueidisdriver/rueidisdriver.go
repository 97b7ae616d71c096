// Package rueidisdriver keeps locks on Redis and Valkey through rueidis. It supports every
// kind of lock.
//
// Concurrent requests of many goroutines share round trips, which makes it the faster of
// the two Redis drivers. It works with a single server, with Sentinel, and with Redis
// Cluster, and needs Redis 7.0 or Valkey 7.2. Its data are those of package redisdriver:
// clients of both may share locks.
//
// Renewals have connections of their own, from the first grant on, so that they never
// wait for other requests. With a timeout above 2 s a subscription has one of its own
// too. On a cluster there are as many for each node that keeps locks. A call that is
// cancelled while rueidis connects for it returns at once. If it waits for the connection
// of another call, it returns when that attempt has ended, after half the timeout at the
// latest.
//
// The server's user needs the rights
//
//	~leasehold:* &leasehold:* +@connection +@scripting +@read +@write +@pubsub +time
//
// and, on a cluster, +cluster|slots and, from version 8 of the server on, +cluster|shards,
// with Sentinel +role. Without the right to publish or to subscribe, waiters poll, and
// holders learn of a break when they renew. With replicas, +info lets a request fail at
// once when too few of them are connected.
package rueidisdriver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/redisurl"
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
// driver has made.
type Driver struct{ *store }

// store is the common part of the drivers of both Redis clients.
type store = redisroom.Store

// Option changes a default of a driver.
type Option func(*options)

type options struct {
	redisroom.Options
	cluster bool // a single address is a node of a cluster for certain
}

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

// New returns a driver that connects by opt, on first use and again when necessary. If a
// server is down, requests fail and New does not. The driver overrides opt's
// retries, client-side caching, timeouts, lifetime of connections, and reads from replicas.
// An error matches [driver.ErrInvalid].
func New(opt rueidis.ClientOption, opts ...Option) (*Driver, error) {
	o, err := with(options{Options: redisroom.Defaults()}, opts)
	if err != nil {
		return nil, fmt.Errorf("rueidisdriver: %w", err)
	}
	if len(opt.InitAddress) == 0 {
		return nil, fmt.Errorf("rueidisdriver: no InitAddress: %w", driver.ErrInvalid)
	}
	if opt.ReplicaOnly {
		return nil, fmt.Errorf("rueidisdriver: replicas cannot keep locks: %w", driver.ErrInvalid)
	}
	return open(opt, o), nil
}

func open(opt rueidis.ClientOption, o options) *Driver {
	client := connect(opt, o)
	return &Driver{redisroom.New(client(), client(), o.Options)}
}

// Open returns a driver for the store at a URL:
//
//	redis://user:password@host:6379/0      a single server; rediss:// with TLS
//	unix:///run/redis.sock                 its socket
//	redis+sentinel://s1,s2,s3/?master=mymaster
//	redis+cluster://n1,n2,n3
//
// Parameters, such as prefix=app:, timeout=500ms and replicas=1, are those of the
// package's options; the manual lists all of them. Options override the URL. Open makes no
// connection. An error matches [driver.ErrInvalid].
func Open(url string, opts ...Option) (*Driver, error) {
	c, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("rueidisdriver: %w", err)
	}
	o, err := with(options{c.Options, c.Kind == redisurl.Cluster}, opts)
	if err != nil {
		return nil, fmt.Errorf("rueidisdriver: %w", err)
	}
	c.Timeout = o.Timeout
	opt := rueidis.ClientOption{
		InitAddress: c.Addrs, Username: c.Username, Password: c.Password, SelectDB: c.DB,
		ClientName: c.ClientName, TLSConfig: c.TLS, ForceSingleClient: c.Kind == redisurl.Single,
	}
	if c.Kind == redisurl.Sentinel {
		opt.Sentinel = rueidis.SentinelOption{
			MasterSet: c.Master, Username: c.SentinelUsername, Password: c.SentinelPassword,
			ClientName: c.ClientName, TLSConfig: c.TLS,
		}
	}
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if d.Control != nil {
			return c.DialSentinel(ctx, addr)
		}
		return c.Dial(ctx, addr)
	}
	return open(opt, o), nil
}
