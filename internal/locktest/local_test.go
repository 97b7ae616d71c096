package locktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// The store tells that nobody else waits: the lease then stays for as long as somebody
// stands in the line, and not for n hand-overs.
func TestRedis_LocalHandoverStaysWhileNobodyElseWaits(t *testing.T) {
	both(t, func(r *rig) {
		const n, callers = 3, 20
		c := r.client(r.server.Addr(), leasehold.WithLocalHandover(n))
		other := r.client(r.server.Addr())
		var token int64
		for try := 1; ; try++ {
			got := make(chan *leasehold.Lease)
			held, err := c.Mutex("k").Lock(context.Background())
			if err != nil {
				r.Fatal(err)
			}
			for range callers {
				go func() {
					l, err := c.Mutex("k").Lock(context.Background())
					if err != nil {
						r.Error(err)
					}
					got <- l
				}()
			}
			waitFor(t, func() bool { return c.Stats().Waiting == callers })
			id, same := held.ID(), 0
			for left := callers; ; left-- {
				l := held
				if left < callers {
					l = <-got
				}
				if l == nil {
					return
				}
				if l.ID() == id {
					same++
				}
				if l.Token() <= token {
					r.Errorf("token %d after %d", l.Token(), token)
				}
				token = l.Token()
				r.release(l)
				if left == 0 {
					break
				}
			}
			r.wantFree("k", 5*time.Second)
			last := r.lock(other, "k")
			if last.Token() <= token {
				r.Errorf("token %d after %d", last.Token(), token)
			}
			token = last.Token()
			r.release(last)
			if same == callers+1 {
				return
			}
			if try == 20 { // a request that is not answered in time ends a stay
				r.Fatalf("%d of %d grants were of the first stay", same, callers+1)
			}
		}
	})
}
