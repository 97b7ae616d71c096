package operations_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server/operations"
)

// vanishing is a store whose client goes just as it is granted its lock.
type vanishing struct {
	driver.Wrapper
	vanish func()
}

func (d *vanishing) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := d.Driver.Acquire(ctx, req)
	d.vanish()
	return reply, err
}

func TestRunner_ClientThatGoesAsTheLockIsGrantedHasNothingRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what is to be told of the end has begun, and gets not far
	ran := 0
	store := &vanishing{Wrapper: driver.Wrapper{Driver: memdriver.New()}}
	r, err := operations.New(operations.Config{
		Store: store, TTL: time.Minute, Wait: time.Minute, StoreTimeout: time.Second, Most: 1,
		Log: slog.New(slog.DiscardHandler), Serving: t.Context(),
		Operation: operations.Operation{Do: func(context.Context, *leasehold.Lease) error { ran++; return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	pattern := operations.Patterns()[0]
	for range 100 {
		var client context.Context
		client, store.vanish = context.WithCancel(t.Context())
		if _, err := r.Execute(client, "r", &pattern); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ran > 0 {
		t.Errorf("%d operations ran without a lock", ran)
	}
}
