package rueidisdriver

import (
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/internal/rediscluster"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// connect returns a function that makes clients of the servers of an option. The clients
// of a cluster share one topology.
func connect(opt rueidis.ClientOption, o options) func() redisroom.Client {
	if opt.ForceSingleClient || opt.Sentinel.MasterSet != "" || opt.Standalone.EnableRedirect || len(opt.Standalone.ReplicaAddress) > 0 {
		return func() redisroom.Client { return newAdapter(opt, o.Timeout) }
	}
	config := rediscluster.Config{
		Seeds: opt.InitAddress, Timeout: o.Timeout, Topology: new(rediscluster.Topology),
		MayBeOne: len(opt.InitAddress) == 1 && !o.cluster,
	}
	config.Open = func(addr string) redisroom.Client {
		node := opt
		node.InitAddress, node.ForceSingleClient, node.ShuffleInit = []string{addr}, true, false
		return newAdapter(node, o.Timeout)
	}
	return func() redisroom.Client { return rediscluster.New(config) }
}
