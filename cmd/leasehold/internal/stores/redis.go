package stores

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/redisurl"
)

// redis opens every form of Redis and Valkey. It does not connect: if the server is down, the
// first request fails.
func redis(rawURL string) (driver.Driver, error) {
	d, err := rueidisdriver.Open(rawURL)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// AmongOthers reports whether a URL has an empty prefix on Redis, so that every key of the
// server belongs to the store. Locks of other libraries can then be found only by a prefix.
func AmongOthers(rawURL string) bool {
	config, err := redisurl.Parse(rawURL)
	return err == nil && config.Prefix == ""
}
