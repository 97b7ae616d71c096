// First takes a lock and works under it. It is the program of the README: start it
// twice, and the second one waits for the first.
//
// Output:
//
//	orders/42 is mine
//	done
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/filedriver"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store, err := filedriver.Open(filepath.Join(os.TempDir(), "leasehold-first")) // or redisdriver.Open("redis://db1:6379")
	if err != nil {
		return err
	}
	client, err := leasehold.New(store)
	if err != nil {
		return err
	}
	defer client.Close()

	return leasehold.Do(ctx, client.Mutex("orders/42"), func(ctx context.Context) error { // waits for its turn
		lease, _ := leasehold.FromContext(ctx)
		return charge(ctx, lease.Token()) // ctx ends before another client can get the lock
	}) // ErrLost: charge was not protected to its end
}

// charge takes two seconds. It would send the token with each write, so that the resource can
// refuse the late write of an earlier holder.
func charge(ctx context.Context, _ int64) error {
	fmt.Println("orders/42 is mine")
	select {
	case <-time.After(2 * time.Second):
		fmt.Println("done")
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
