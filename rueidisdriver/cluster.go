package rueidisdriver

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/internal/rediscluster"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// connect returns what makes clients of the servers that an option names. Those of a
// cluster share one picture of it.
func connect(opt rueidis.ClientOption, timeout time.Duration) func() redisroom.Client {
	if opt.ForceSingleClient || opt.Sentinel.MasterSet != "" || opt.Standalone.EnableRedirect || len(opt.Standalone.ReplicaAddress) > 0 {
		return func() redisroom.Client { return newSeam(opt, timeout) }
	}
	config := rediscluster.Config{
		Seeds: opt.InitAddress, Timeout: timeout, Picture: new(rediscluster.Picture),
		MayBeOne: len(opt.InitAddress) == 1,
	}
	config.Open = func(addr string) redisroom.Client {
		node := opt
		node.InitAddress, node.ForceSingleClient, node.ShuffleInit = []string{addr}, true, false
		return newSeam(node, timeout)
	}
	return func() redisroom.Client { return rediscluster.New(config) }
}
