package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/operations"
)

// A service in your own program; `leasehold serve` is the same with flags.
func Example() {
	service, err := server.New(memdriver.New(), // or redisdriver.New(redisClient)
		server.WithMaxTTL(10*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- service.Serve(listener, nil) }()

	res, err := http.Post("http://"+listener.Addr().String()+"/v1/locks/orders%2F42", "application/json",
		strings.NewReader(`{"leaseId":"a1","ttlMs":30000,"waitMs":5000}`))
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	fmt.Println(res.Status)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := service.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	// Output: 201 Created
}

// An operation of your own, executed under a lock when a client requests it.
func ExampleWithOperation() {
	rebuild := operations.Operation{Do: func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("rebuilding", lease.Key())
		return ctx.Err() // it ends with the lease
	}}
	service, err := server.New(memdriver.New(), server.WithOperation(rebuild))
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = service.Serve(listener, nil) }()

	res, err := http.Post("http://"+listener.Addr().String()+"/api/locks/watchdog/index", "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.HasPrefix(string(body), `{"success":true,"resourceId":"index","durationMs":`))
	// Output:
	// rebuilding index
	// true
}
