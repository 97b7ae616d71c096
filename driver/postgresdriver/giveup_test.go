package postgresdriver

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// No caller of List and Sweep stops waiting for them when the context ends, so they must
// return themselves. Close waits for the sweep.
func TestListAndSweep_EndWithTheirContext(t *testing.T) {
	live.Test(t)
	server := postgrestest.Shared(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=60s"))
	boss := admin(t, server.URL())
	exec(t, boss, `BEGIN`)
	exec(t, boss, `LOCK TABLE leasehold`)
	for name, call := range map[string]func(context.Context) error{
		"list": func(ctx context.Context) error {
			_, _, err := d.List(ctx, "", "")
			return err
		},
		"sweep": func(ctx context.Context) error {
			_, err := d.table.Sweep(ctx, 1)
			return err
		},
	} {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if took := time.Since(start); took > 30*time.Second {
			live.Late(t, "%s: %v after %v", name, err, took)
		}
	}
}
