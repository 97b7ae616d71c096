package leaseholdotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/leaseholdotel"
)

// The program has set its providers with otel.SetTracerProvider and
// otel.SetMeterProvider. WithTracerProvider and WithMeterProvider name others.
func Example() {
	observer, err := leaseholdotel.New()
	if err != nil {
		panic(err)
	}
	client, err := leasehold.New(memdriver.New(), leasehold.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	defer client.Close()

	// The spans are "acquire lock", "hold lock" with "charge" below it, and "release lock".
	err = leasehold.Do(context.Background(), client.Mutex("orders/42"), func(ctx context.Context) error {
		_, span := otel.Tracer("shop").Start(ctx, "charge")
		defer span.End()
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
}
