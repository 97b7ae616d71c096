//go:build !small

package stores

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/natsdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver"
)

// optional are the stores whose clients make the command larger. The tag small leaves them out.
var optional = []kind{
	{[]string{"nats", "tls"}, []string{"nats://user:password@n1,n2,n3/bucket"}, opened(natsdriver.Open)},
	{[]string{"s3"}, []string{"s3://bucket/prefix?region=eu-central-1"}, opened(s3driver.Open)},
}

// opened returns the open of a kind, which returns no nil driver in an interface.
func opened[D driver.Driver, O any](open func(string, ...O) (D, error)) func(string) (driver.Driver, error) {
	return func(rawURL string) (driver.Driver, error) {
		d, err := open(rawURL)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}
