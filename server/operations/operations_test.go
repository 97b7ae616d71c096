package operations_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server/operations"
)

func TestRunner_ClientThatGoesAsTheLockIsGrantedHasNothingRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what is to be told of the end has begun, and gets not far
	ran := 0
	var vanish func() // makes the client go
	type sender = func(context.Context) error
	store := intercept.New(memdriver.New(), func(ctx context.Context, m *intercept.Message, send sender) error {
		if m.Verb == intercept.Acquire {
			defer vanish()
		}
		return send(ctx)
	})
	r, err := operations.New(operations.Config{
		Store: store, TTL: time.Minute, Wait: time.Minute, StoreTimeout: time.Second, Most: 1,
		Log: slog.New(slog.DiscardHandler), Serving: t.Context(),
		Operation: operations.Operation{Do: func(context.Context, *leasehold.Lease) error { ran++; return nil }},
	})
	ask.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	pattern := operations.Patterns()[0]
	for range 100 {
		client, cancel := context.WithCancel(t.Context())
		vanish = cancel
		if _, err := r.Execute(client, "r", &pattern); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		ask.NoError(t, r.Wait(t.Context()))
	}
	if ran > 0 {
		t.Errorf("%d operations ran without a lock", ran)
	}
}

func TestRunner_WaitWithoutTimeReturnsThatNothingRuns(t *testing.T) {
	r, err := operations.New(operations.Config{Store: memdriver.New(), StoreTimeout: time.Second, Most: 1, Log: slog.New(slog.DiscardHandler)})
	ask.NoError(t, err)
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		ask.NoError(t, r.Wait(ctx))
	}
}
