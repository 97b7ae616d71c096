package redisdriver

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redisurl"
)

// Open returns a driver for the store that a URL names:
//
//	redis://user:password@host:6379/0      a single server; rediss:// with TLS
//	unix:///run/redis.sock                 its socket
//	redis+sentinel://s1,s2,s3/?master=mymaster
//	redis+cluster://n1,n2,n3
//
// Parameters, such as prefix=app:, timeout=500ms and replicas=1, are those of the
// package's options; the manual lists all of them. Nothing is sent. An error matches
// [driver.ErrInvalid].
func Open(url string) (*Driver, error) {
	c, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("redisdriver: %w", err)
	}
	o := options{prefix: c.Prefix, timeout: c.Timeout, acks: c.Acks}
	return o.store(func() *seam { return connect(c) }), nil
}

func connect(c redisurl.Config) *seam {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }
	switch c.Kind {
	case redisurl.Sentinel:
		// The failover client is made for its dialer, which asks the sentinels.
		failover := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: c.Master, SentinelAddrs: c.Addrs,
			SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
			Username: c.Username, Password: c.Password, DB: c.DB, ClientName: c.ClientName, TLSConfig: c.TLS,
			Dialer: dial, DialTimeout: c.Timeout / 2, ReadTimeout: c.Timeout, ContextTimeoutEnabled: true, MaxRetries: -1,
		})
		s := newSingle(*failover.Options(), c.Timeout)
		s.closeToo = failover.Close
		s.sentinels = sentinels{addrs: c.Addrs, primary: c.Master, connect: func(addr string) *redis.SentinelClient {
			return redis.NewSentinelClient(&redis.Options{
				Addr: addr, Username: c.SentinelUsername, Password: c.SentinelPassword, TLSConfig: c.TLS,
				Dialer: dial, MaxRetries: -1, ContextTimeoutEnabled: true,
			})
		}}
		return s
	case redisurl.Cluster:
		return newCluster(redis.ClusterOptions{
			Addrs: c.Addrs, Username: c.Username, Password: c.Password, ClientName: c.ClientName, TLSConfig: c.TLS, Dialer: dial,
		}, c.Timeout)
	default:
		return newSingle(redis.Options{
			Network: c.Network, Addr: c.Addrs[0], Username: c.Username, Password: c.Password,
			DB: c.DB, ClientName: c.ClientName, TLSConfig: c.TLS, Dialer: dial,
		}, c.Timeout)
	}
}
