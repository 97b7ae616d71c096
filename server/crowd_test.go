package server_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// memory returns the size of heap and stacks after garbage collection.
func memory() int64 {
	runtime.GC()
	runtime.GC() // the first collection runs finalizers and empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// dial opens n connections, some at a time, and sends the result of text by each.
func dial(t *testing.T, addr string, n int, text func(i int) string) []net.Conn {
	t.Helper()
	all := make([]net.Conn, n)
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := worker; i < n; i += 32 {
				c, err := network.dial(t.Context(), addr)
				if err == nil {
					_, err = fmt.Fprint(c, text(i))
				}
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = c
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() { hangUp(all) })
	return all
}

func hangUp(all []net.Conn) {
	for _, c := range all {
		if c != nil {
			c.Close()
		}
	}
}

// warmUp lets clients wait and vanish, for the allocations that happen only once.
func warmUp(t *testing.T, addr string, store driver.Driver) {
	t.Helper()
	all := dial(t, addr, 32, func(i int) string { return waits(-1 - i) })
	awaitQueue(t, store, 32)
	hangUp(all)
	awaitQueue(t, store, 0)
}

// waits returns a request that waits for the lock k. Its holder keeps the lock during the test.
func waits(i int) string {
	body := fmt.Sprintf(`{"leaseId":"w.%d","ttlMs":600000,"waitMs":60000}`, i)
	return fmt.Sprintf("POST /v1/locks/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// perWaiter is the maximum memory of a client that waits, in bytes. It includes the client's side
// of the connection, which is in the same process.
const perWaiter = 32 << 10

func weighWaiters(t *testing.T, n int) {
	skip.Racing(t, "it measures memory")
	redis := redistest.Start(t)
	d, err := rueidisdriver.Open(redis.URL())
	noErr(t, err)
	addr := listen(t, d)
	must(t, 201, "POST", addr+"/v1/locks/k", `{"leaseId":"holder","ttlMs":600000}`)
	warmUp(t, addr, d)
	before := memory()
	all := dial(t, addr, n, waits)
	awaitQueue(t, d, n)
	each := (memory() - before) / int64(n)
	t.Logf("%d clients that wait take %d bytes each", n, each)
	if each > perWaiter {
		t.Errorf("a client that waits takes %d bytes, more than %d", each, perWaiter)
	}
	hangUp(all)
	awaitQueue(t, d, 0)
}

// awaitQueue waits until the queue of k has n waiters.
func awaitQueue(t *testing.T, store driver.Driver, n int) {
	t.Helper()
	eventually(t, func() bool {
		snap, err := store.(driver.Inspector).Inspect(context.Background(), "k")
		return err == nil && len(snap.Waiters) == n
	})
}

func TestCrowd_AWaitingClientIsCheap(t *testing.T) { weighWaiters(t, 1000) }

// vanishing lets clients connect, wait and vanish, in waves, and checks that they leave no
// waiters and no goroutines.
func vanishing(t *testing.T, store driver.Driver, clients, wave int) {
	addr := listen(t, store)
	must(t, 201, "POST", addr+"/v1/locks/k", `{"leaseId":"holder","ttlMs":600000}`)
	warmUp(t, addr, store)
	before := runtime.NumGoroutine()
	for begun := 0; begun < clients; begun += wave {
		all := dial(t, addr, wave, func(i int) string { return waits(begun + i) })
		if begun%(2*wave) == 0 {
			awaitQueue(t, store, wave)
		} // in the other waves they vanish while they arrive
		hangUp(all)
		awaitQueue(t, store, 0)
	}
	must(t, 204, "DELETE", addr+"/v1/locks/k/leases/holder?forbidMs=0", "")
	// If the lock was granted to a client that hung up, it is given back.
	eventually(t, func() bool {
		keys, _, err := store.(driver.Inspector).List(context.Background(), "", "")
		return err == nil && len(keys) == 0 && runtime.NumGoroutine() <= before+4 // of the client that asked for the lock
	})
}

func TestCrowd_H1_WhoeverVanishesLeavesNothing(t *testing.T) {
	vanishing(t, memdriver.New(), 400, 100)
}
