package redisdriver

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/redisurl"
)

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
		return nil, fmt.Errorf("redisdriver: %w", err)
	}
	o, err := with(c.Options, opts)
	if err != nil {
		return nil, fmt.Errorf("redisdriver: %w", err)
	}
	c.Timeout = o.Timeout
	client := connect(c)
	return &Driver{redisroom.New(client(), client(), o)}, nil
}

// connect returns a function that makes clients of the servers of a URL.
func connect(c redisurl.Config) func() redisroom.Client {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }
	dialSentinel := func(ctx context.Context, _, addr string) (net.Conn, error) { return c.DialSentinel(ctx, addr) }
	switch c.Kind {
	case redisurl.Sentinel:
		return func() redisroom.Client { return newBehindSentinels(c, dial, dialSentinel) }
	case redisurl.Cluster:
		return clusterOf(redis.ClusterOptions{
			Addrs: c.Addrs, Username: c.Username, Password: c.Password, ClientName: c.ClientName, TLSConfig: c.TLS, Dialer: dial,
		}, c.Timeout)
	default:
		return func() redisroom.Client {
			return newSingle(redis.Options{
				Network: c.Network, Addr: c.Addrs[0], Username: c.Username, Password: c.Password,
				DB: c.DB, ClientName: c.ClientName, TLSConfig: c.TLS, Dialer: dial,
			}, c.Timeout)
		}
	}
}

// newBehindSentinels returns a client of the primary that the sentinels of a URL name.
func newBehindSentinels(c redisurl.Config, dial, dialSentinel dialFunc) *adapter {
	// The failover client is made for its dialer, which asks the sentinels.
	var sentinelConns interrupt.Conns
	failover := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: c.Master, SentinelAddrs: c.Addrs,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		Username: c.Username, Password: c.Password, DB: c.DB, ClientName: c.ClientName, TLSConfig: c.TLS,
		Dialer: trackSentinels(&sentinelConns, dial, dialSentinel), DialTimeout: c.Timeout / 2, ReadTimeout: c.Timeout, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
	})
	opt := *failover.Options()
	opt.Dialer = cutAfterSearch(&sentinelConns, opt.Dialer)
	s := newSingle(opt, c.Timeout)
	s.closeToo, s.direct = func() error {
		err := failover.Close()
		sentinelConns.Cut()
		return err
	}, dial
	s.sentinels = sentinels{addrs: c.Addrs, primary: c.Master, options: redis.Options{
		Username: c.SentinelUsername, Password: c.SentinelPassword, TLSConfig: c.TLS, Dialer: dialSentinel,
	}}
	return s
}
