package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/sqlitestore"
)

// newClient returns a client of a store of its own on the file.
func newClient(ctx context.Context, path string) *leasehold.Client {
	store, err := sqlitestore.Open(ctx, path)
	if err != nil {
		panic(err)
	}
	client, err := leasehold.New(store)
	if err != nil {
		panic(err)
	}
	return client
}

// Two programs on one file: the second waits in the queue until the first has
// released.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "sqlitestore")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "app.db")
	alpha, beta := newClient(ctx, path), newClient(ctx, path)
	defer alpha.Close() // and its store
	defer beta.Close()

	first, _ := alpha.Mutex("orders/42").Lock(ctx)
	go first.Release()
	second, err := beta.Mutex("orders/42").Lock(ctx)
	fmt.Println(second.Token() > first.Token(), err, second.Release())
	// Output: true <nil> <nil>
}
