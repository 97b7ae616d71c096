package cli

import (
	"context"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// TestOperation_CommandOutlivesTheTimeToConfirmAHandOver has the lock handed over:
// what is left of it then is a second, which is less than a command is given.
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
		flags := newOperationFlags()
		flags.command = "sleep 0.2"
		if err := flags.shell().Do(lease.Context(), lease); err != nil {
			return err
		}
		return lease.Release()
	}
	for range 3 { // the first wait has the client listen for hints
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
