package httpdriver

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Check reports whether a name with a slash and with dots reaches the service in a path. The
// driver itself sends no name in a path. See [driver.Checker].
func (d *Driver) Check(ctx context.Context) (report driver.Report, err error) {
	const name = "leasehold-doctor/./path"
	switch _, err := d.Glance(ctx, name); {
	case errors.Is(err, driver.ErrPermanent), errors.Is(err, errors.ErrUnsupported): // a right is missing, for instance
		report.Add(driver.Notice, "path", "cannot be looked at: "+err.Error(), "", "")
		return report, nil
	case err != nil:
		return report, err
	}
	var l wire.Lock
	err = d.look(ctx, "/locks/"+url.PathEscape(name)+"?waiters=false", &l)
	if err == nil && l.Key == name {
		report.Add(driver.Good, "path", "a name with a slash reaches the service", "", "")
		return report, nil
	}
	if err == nil {
		err = fmt.Errorf("it answers for %q", l.Key)
	}
	report.Add(driver.Warning, "path", fmt.Sprintf("a proxy changes paths: asked for %q, %v", name, err),
		"programs that name a lock in the path, such as curl, get another lock or an error", "see \"Behind a proxy\" in docs/http.md")
	return report, nil
}
