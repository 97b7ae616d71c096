package stores

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/redisurl"
)

// redis opens every form of Redis and Valkey. Nothing is sent: a server that
// is down is noticed by the first request.
func redis(rawURL string) (driver.Driver, error) {
	d, err := rueidisdriver.Open(rawURL)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// AmongOthers reports whether a URL has an empty prefix on Redis, where every key is one of
// the store. Which of them are locks of other libraries is then known only under a prefix.
func AmongOthers(rawURL string) bool {
	config, err := redisurl.Parse(rawURL)
	return err == nil && config.Prefix == ""
}
