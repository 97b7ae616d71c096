package stores

import (
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// postgres opens a table of a database. It does not connect.
func postgres(rawURL string) (driver.Driver, error) {
	d, err := postgresdriver.Open(rawURL)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Schema returns the statements that create the table of a store on PostgreSQL; for a quorum of
// such stores, the statements for each node. It makes no connection. The error matches
// [driver.ErrInvalid] if the URL is wrong, or if its store needs no schema.
func Schema(rawURL string) (string, error) {
	scheme, err := schemeOf(rawURL)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(scheme, quorumPrefix+"postgres") {
		urls, _, _, err := quorumNodes(rawURL)
		if err != nil {
			return "", fmt.Errorf("store %s: %w: %w", storeurl.Redact(rawURL), err, driver.ErrInvalid)
		}
		return Schema(urls[0])
	}
	switch scheme {
	case "postgres", "postgresql":
		d, err := postgresdriver.Open(rawURL)
		if err != nil {
			return "", err
		}
		defer d.Close()
		return d.SQL(), nil
	case mixed:
		return "", fmt.Errorf("store %s: give the URL of one node on PostgreSQL; other nodes need no schema: %w", storeurl.Redact(rawURL), driver.ErrInvalid)
	}
	return "", fmt.Errorf("store %s needs no schema: only PostgreSQL does: %w", storeurl.Redact(rawURL), driver.ErrInvalid)
}
