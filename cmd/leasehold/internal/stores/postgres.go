package stores

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
)

// postgres opens a table of a database. It does not connect.
func postgres(rawURL string) (driver.Driver, error) {
	d, err := postgresdriver.Open(rawURL)
	if err != nil {
		return nil, err
	}
	return d, nil
}
