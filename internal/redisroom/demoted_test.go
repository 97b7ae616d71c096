package redisroom_test

import (
	"fmt"
	"net"
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
		d := open("redis://" + balance(t, leads.Load))
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
