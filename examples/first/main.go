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
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store, err := open()
	if err != nil {
		return err
	}
	client, err := leasehold.New(store)
	if err != nil {
		return err
	}
	defer client.Close()

	lease, err := client.Mutex("orders/42").Lock(ctx) // waits for its turn
	if err != nil {
		return err
	}
	fmt.Println("orders/42 is mine")
	work(lease.Context(), lease.Token())
	fmt.Println("done")
	return lease.Release() // ErrLost: the work was not protected to its end
}

// open returns the Redis server of $REDIS_URL (redis://localhost:6379), or a
// directory of this machine.
func open() (driver.Driver, error) {
	if url := os.Getenv("REDIS_URL"); url != "" {
		return redisdriver.Open(url)
	}
	return filedriver.Open(filepath.Join(os.TempDir(), "leasehold-first"))
}

// work takes two seconds, or ends when the lease does. Its writes would carry the token,
// so that the resource can refuse a late write.
func work(ctx context.Context, _ int64) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
}
