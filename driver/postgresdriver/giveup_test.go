package postgresdriver

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// Nobody stands behind these to give the answer up: they have to end themselves. A driver
// that is closed waits for its sweep.
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
