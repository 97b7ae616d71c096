package leaderelection_test

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/integrations/leaderelection"
)

// The callbacks are those of client-go.
func ExampleRunOrDie() {
	client, _ := leasehold.New(memdriver.New()) // of several hosts: a server
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Client:   client,
		Name:     "controller",
		Identity: "pod-1",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leading")
				cancel() // the pod is terminated
				<-ctx.Done()
			},
			OnStoppedLeading: func() { fmt.Println("stopped") },
		},
	})
	// Output:
	// leading
	// stopped
}
