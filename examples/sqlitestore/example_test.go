package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/sqlitestore"
)

// Two programs on one file: the second waits in the queue until the first has
// released.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqlitestore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "app.db")

	var clients [2]*leasehold.Client
	for i := range clients {
		store, err := sqlitestore.Open(ctx, path)
		if err != nil {
			fmt.Println(err)
			return
		}
		if clients[i], err = leasehold.New(store); err != nil {
			fmt.Println(err)
			return
		}
		defer clients[i].Close() // and the store
	}

	first, err := clients[0].Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	go first.Release()
	second, err := clients[1].Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(second.Token() > first.Token(), second.Release())
	// Output: true <nil>
}
