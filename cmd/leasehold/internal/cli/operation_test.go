package cli

import (
	"context"
	"testing"

	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// TestOperation_CommandOutlivesTheTimeToConfirmAHandOver hands the lock over: the lease then has
// only a second left, which is less than the time that a command needs at its start.
func TestOperation_CommandOutlivesTheTimeToConfirmAHandOver(t *testing.T) {
	client, err := leasehold.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	m := client.Mutex("k")
	operate := func(ctx context.Context) error {
		lease, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		var flags operationFlags
		flags.register(pflag.NewFlagSet("", pflag.ContinueOnError))
		flags.command = "sleep 0.2"
		if err := flags.shell().Do(lease.Context(), lease); err != nil {
			return err
		}
		return lease.Release()
	}
	for range 3 { // the first wait makes the client subscribe to hints
		first, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting, done := make(chan struct{}, 100), make(chan error, 1)
		go func() {
			done <- operate(leasehold.ObserveWait(t.Context(), func(leasehold.WaitEvent) { waiting <- struct{}{} }))
		}()
		<-waiting
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
