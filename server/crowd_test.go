package server_test

import (
	"context"
	"fmt"
	"runtime"
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

// crowded returns a service with a lock that is held during the test. Some clients have waited for
// it and vanished, for the allocations that happen only once.
func crowded(t *testing.T, store driver.Driver) *town {
	t.Helper()
	base := listen(t, store)
	must(t, 201, "POST", base+"/v1/locks/k", `{"leaseId":"holder","ttlMs":600000}`)
	town := &town{T: t, store: store.(driver.Inspector), base: [2]string{base, base}}
	all := town.crowd("first", 32)
	town.gathers(32)
	hangUp(all)
	town.gathers(0)
	return town
}

// crowd lets n clients ask for the lock and wait.
func (t *town) crowd(id string, n int) []*phone {
	t.Helper()
	all := make([]*phone, n)
	for i := range all {
		all[i] = t.call(0, fmt.Sprint(id, ".", i))
	}
	return all
}

func hangUp(all []*phone) {
	for _, p := range all {
		p.die()
	}
}

// gathers waits until the queue has n waiters. A large crowd takes its time.
func (t *town) gathers(n int) {
	t.Helper()
	eventually(t, func() bool { return len(t.look().Waiters) == n })
}

// perWaiter is the maximum memory of a client that waits, in bytes. It includes the client's side
// of the connection, which is in the same process.
const perWaiter = 32 << 10

func weighWaiters(t *testing.T, n int) {
	skip.Racing(t, "it measures memory")
	redis := redistest.Start(t)
	d, err := rueidisdriver.Open(redis.URL())
	noErr(t, err)
	town := crowded(t, d)
	before := memory()
	all := town.crowd("w", n)
	town.gathers(n)
	each := (memory() - before) / int64(n)
	t.Logf("%d clients that wait take %d bytes each", n, each)
	if each > perWaiter {
		t.Errorf("a client that waits takes %d bytes, more than %d", each, perWaiter)
	}
	hangUp(all)
	town.gathers(0)
}

func TestCrowd_AWaitingClientIsCheap(t *testing.T) { weighWaiters(t, 1000) }

// vanishing lets clients connect, wait and vanish, in waves, and checks that they leave no
// waiters and no goroutines.
func vanishing(t *testing.T, store driver.Driver, clients, wave int) {
	town := crowded(t, store)
	before := runtime.NumGoroutine()
	for begun := 0; begun < clients; begun += wave {
		all := town.crowd(fmt.Sprint("w", begun), wave)
		if begun%(2*wave) == 0 {
			town.gathers(wave)
		} // in the other waves they vanish while they arrive
		hangUp(all)
		town.gathers(0)
	}
	must(t, 204, "DELETE", town.url(0, "/v1/locks/k/leases/holder?forbidMs=0"), "")
	// If the lock was granted to a client that hung up, it is given back.
	eventually(t, func() bool {
		keys, _, err := town.store.List(context.Background(), "", "")
		return err == nil && len(keys) == 0 && runtime.NumGoroutine() <= before+4 // of the client that asked for the lock
	})
}

func TestCrowd_H1_WhoeverVanishesLeavesNothing(t *testing.T) {
	vanishing(t, memdriver.New(), 200, 50)
}
