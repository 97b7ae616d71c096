package leaseholdotel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/memdriver"
)

func Example() {
	spans := tracetest.NewInMemoryExporter()
	traces := sdk.NewTracerProvider(sdk.WithSyncer(spans)) // by default, the global one is used
	observer, err := leaseholdotel.New(leaseholdotel.WithTracerProvider(traces))
	if err != nil {
		panic(err)
	}
	client, err := leasehold.New(memdriver.New(), leasehold.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	defer client.Close()

	_ = leasehold.Do(context.Background(), client.Mutex("orders/42"), func(ctx context.Context) error {
		_, span := traces.Tracer("shop").Start(ctx, "charge")
		span.End()
		return nil
	})
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name)
	}
	// Output:
	// acquire lock
	// charge
	// hold lock
	// release lock
}
