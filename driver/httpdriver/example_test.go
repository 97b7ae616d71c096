package httpdriver_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// The library over a service: all kinds of lock, renewal, waiting and loss are as
// on any other store.
func Example() {
	service, err := server.New(memdriver.New())
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	locks := httptest.NewServer(service) // elsewhere: leasehold serve
	defer locks.Close()

	store, err := httpdriver.Open(locks.URL)
	if err != nil {
		log.Fatal(err)
	}
	client, err := leasehold.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = leasehold.Do(context.Background(), client.Mutex("orders/42"), func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		fmt.Println("charging", lease.Key())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: charging orders/42
}
