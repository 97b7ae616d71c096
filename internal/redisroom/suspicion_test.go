package redisroom_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestHandOver_W5_PassesOverTheTicketsOfAProcessThatDied(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		dead, live := open(s.URL()), open(s.URL())
		silent, e := listen(t, dead), listen(t, live)
		key := t.Name()
		acquire(t, live, request(key, "holder"), driver.Granted)
		for _, id := range []string{"dead1", "live1", "dead2", "live2"} {
			req := waiting(key, id, e.Address())
			if id[0] == 'd' {
				req.HintAddress = silent.Address()
			}
			req.ConfirmWindow = 50 * time.Millisecond
			acquire(t, live, req, driver.Queued)
		}
		release(t, live, key, "holder", driver.Released)
		silent.hear(t, driver.HintGranted, "dead1") // and does nothing

		live1 := driver.Ref{Key: key, ID: "live1", TTL: 10 * time.Second, TicketTTL: 10 * time.Second, HintAddress: e.Address()}
		eventually(t, "the window of dead1 is over", func() bool {
			replies, errs := renewAll(live, []driver.Ref{live1})
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
			return replies[0].State == driver.Granted
		})
		release(t, live, key, "live1", driver.Released)
		e.hear(t, driver.HintGranted, "live2")
	})
}
