package operations_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server/operations"
)

func TestRunner_WaitWithoutTimeReturnsThatNothingRuns(t *testing.T) {
	r, err := operations.New(operations.Config{Store: memdriver.New(), StoreTimeout: time.Second, Most: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := r.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
