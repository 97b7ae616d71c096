package room

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestRelease_ThatIsRefusedTellsTheWaiterThatItIsGranted: the lease of the holder is over when
// another visit of the waiter gives the ticket up. The waiter stays, this call hands it the lock,
// and a hint must report the grant.
func TestRelease_ThatIsRefusedTellsTheWaiterThatItIsGranted(t *testing.T) {
	r := new(Record)
	second := time.Second.Microseconds()
	ask := func(req driver.Request, at int64, want driver.State) {
		t.Helper()
		req.Key, req.ConfirmWindow = "k", time.Second
		if reply, _, err := Acquire(r, req, at); err != nil || reply.State != want {
			t.Fatalf("%s: %+v, %v", req.ID, reply, err)
		}
	}
	ask(driver.Request{ID: "a", TTL: time.Second}, second, driver.Granted)
	ask(driver.Request{ID: "b", TTL: time.Minute, TicketTTL: time.Minute, HintAddress: "B", Visit: "v/2"}, second, driver.Queued)
	reply, wakes := Release(r, driver.Ref{Key: "k", ID: "b", Visit: "v/1"}, 3*second)
	if reply.State != driver.Busy {
		t.Fatalf("%+v", reply)
	}
	if len(wakes) != 1 || wakes[0].Address != "B" || wakes[0].Hint.Kind != driver.HintGranted || wakes[0].Hint.ID != "b" {
		t.Errorf("told %+v", wakes)
	}
}
