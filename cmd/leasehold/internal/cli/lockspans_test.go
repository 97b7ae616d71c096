package cli_test

import (
	"context"
	"slices"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/leaseholdotel"
)

// TestLibrary_SpansOfALockReachTheSDKOfOpenTelemetry is here because the module
// of the library does not require the SDK.
func TestLibrary_SpansOfALockReachTheSDKOfOpenTelemetry(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	traces := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	observer, err := leaseholdotel.New(leaseholdotel.WithTracerProvider(traces))
	if err != nil {
		t.Fatal(err)
	}
	client, err := leasehold.New(memdriver.New(), leasehold.WithObserver(observer))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	err = leasehold.Do(t.Context(), client.Mutex("orders/42"), func(ctx context.Context) error {
		_, span := traces.Tracer("shop").Start(ctx, "charge")
		span.End()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range spans.GetSpans() {
		names = append(names, s.Name)
	}
	if want := []string{"acquire lock", "charge", "hold lock", "release lock"}; !slices.Equal(names, want) {
		t.Errorf("spans %q, want %q", names, want)
	}
}
