package stores

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
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
