package redisdriver

import (
	"context"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/rediscluster"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// clusterOf returns a function that makes clients of a cluster, which share one topology.
func clusterOf(opt redis.ClusterOptions, timeout time.Duration) func() redisroom.Client {
	config := rediscluster.Config{Seeds: opt.Addrs, Timeout: timeout, Topology: new(rediscluster.Topology)}
	config.Open = func(addr string) redisroom.Client { return newSingle(nodeOptions(&opt, addr), timeout) }
	if opt.ClusterSlots != nil {
		config.Look = func(ctx context.Context) ([]rediscluster.Range, error) { return slotRanges(ctx, opt.ClusterSlots) }
	}
	return func() redisroom.Client { return rediscluster.New(config) }
}

// nodeOptions returns the options of a client of one node.
func nodeOptions(opt *redis.ClusterOptions, addr string) redis.Options {
	return redis.Options{
		Addr: addr, Dialer: opt.Dialer, OnConnect: opt.OnConnect, TLSConfig: opt.TLSConfig,
		ClientName: opt.ClientName, Protocol: opt.Protocol, Username: opt.Username, Password: opt.Password,
		CredentialsProvider: opt.CredentialsProvider, CredentialsProviderContext: opt.CredentialsProviderContext,
		StreamingCredentialsProvider: opt.StreamingCredentialsProvider,
		PoolFIFO:                     opt.PoolFIFO, PoolSize: opt.PoolSize, MaxConcurrentDials: opt.MaxConcurrentDials,
		MaxIdleConns: opt.MaxIdleConns, ConnMaxIdleTime: opt.ConnMaxIdleTime,
		ConnMaxLifetime: opt.ConnMaxLifetime, ConnMaxLifetimeJitter: opt.ConnMaxLifetimeJitter,
		ReadBufferSize: opt.ReadBufferSize, WriteBufferSize: opt.WriteBufferSize,
		DisableIdentity: opt.DisableIdentity || opt.DisableIndentity, IdentitySuffix: opt.IdentitySuffix, //nolint:staticcheck // deprecated, but the caller may have set it
	}
}

// slotRanges returns the topology that the application's function gives.
func slotRanges(ctx context.Context, tell func(context.Context) ([]redis.ClusterSlot, error)) (ranges []rediscluster.Range, err error) {
	slots, err := tell(ctx)
	for _, slot := range slots {
		r := rediscluster.Range{First: slot.Start, Last: slot.End}
		for i, node := range slot.Nodes {
			if i == 0 {
				r.Primary = node.Addr
			} else {
				r.Replicas = append(r.Replicas, node.Addr)
			}
		}
		ranges = append(ranges, r)
	}
	sort.Slice(ranges, func(i, j int) bool { return ranges[i].First < ranges[j].First })
	return ranges, err
}
