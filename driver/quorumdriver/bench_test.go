package quorumdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
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
	var urls []string
	for range 5 {
		urls = append(urls, redistest.Start(b).URL())
	}
	redis := func(b *testing.B, n int) (nodes []driver.Driver) {
		for _, url := range urls[:n] {
			d, err := rueidisdriver.Open(url)
			if err != nil {
				b.Fatal(err)
			}
			nodes = append(nodes, d)
		}
		return nodes
	}
	b.Run("redis, one", func(b *testing.B) {
		d := redis(b, 1)[0]
		defer d.Close()
		pair(b, d)
	})
	b.Run("redis, quorum of 5", func(b *testing.B) { pair(b, open(b, redis(b, 5))) })
	b.Run("redis, quorum of 5, unfenced", func(b *testing.B) { pair(b, open(b, redis(b, 5), quorumdriver.WithoutFencing())) })
}
