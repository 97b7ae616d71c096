package redisroom_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// A primary that becomes a replica keeps its connections. If a DNS name refers to the primary, as
// with some providers, only a new connection reaches its successor.
func TestAcquire_AServerThatHasBecomeAReplicaIsLeft(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(string) store) {
		old, next := redistest.Start(t), redistest.Start(t)
		var leads atomic.Pointer[redistest.Server]
		leads.Store(old)
		d := open("redis://" + led(t, &leads))
		acquire(t, d, request("k", "a"), driver.Granted)
		renew(t, d, lease("k", "a"), driver.Granted)
		host, port, err := net.SplitHostPort(next.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := old.Client().Do(background, "REPLICAOF", host, port).Err(); err != nil {
			t.Fatal(err)
		}
		leads.Store(next)
		n := 0
		eventually(t, "granted by the successor", func() bool {
			n++
			_, err := d.Acquire(background, request(fmt.Sprint("other", n), "a"))
			return err == nil
		})
		eventually(t, "renewed by the successor", func() bool {
			_, errs := renewAll(d, []driver.Ref{lease("other1", "a")})
			return errs[0] == nil
		})
	})
}

// led returns an address that leads to a server; each connection may lead to another one.
func led(t *testing.T, to *atomic.Pointer[redistest.Server]) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to.Load().Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				})
			}
		}
	})
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
