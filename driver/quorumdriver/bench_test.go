package quorumdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func BenchmarkPair(b *testing.B) {
	pair := func(b *testing.B, d driver.Driver) {
		ctx := context.Background()
		req := driver.Request{Key: "k", ID: "a", TTL: time.Minute, Owner: "me"}
		one := func(i int) {
			req.ID = fmt.Sprint("id", i)
			if reply, err := d.Acquire(ctx, req); err != nil || reply.State != driver.Granted {
				b.Fatalf("%+v, %v", reply, err)
			}
			if reply, err := d.Release(ctx, driver.Ref{Key: "k", ID: req.ID}); err != nil || reply.State != driver.Released {
				b.Fatalf("%+v, %v", reply, err)
			}
		}
		for i := range 10 {
			one(-i - 1)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			one(i)
			i++
		}
	}
	b.Run("memory, one", func(b *testing.B) { pair(b, memdriver.New()) })
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprint("memory, quorum of ", n), func(b *testing.B) {
			var nodes []driver.Driver
			for range n {
				nodes = append(nodes, memdriver.New())
			}
			pair(b, open(b, nodes))
		})
	}
}
