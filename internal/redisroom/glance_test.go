package redisroom

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
)

// TestGlance_HR_D7_CostsTheSameHoweverManyWait inspects the holder in front of many candidates,
// each with labels of a kilobyte.
func TestGlance_HR_D7_CostsTheSameHoweverManyWait(t *testing.T) {
	l, queued := newLens(lensStart), 0
	mustAcquire(t, l.store, driver.Granted, asking("leader"))
	look := func(waiters int) (commands, sent int) {
		for ; queued < waiters; queued++ {
			mustAcquire(t, l.store, driver.Queued, asking(fmt.Sprint("w", queued), queues, func(req *driver.Request) {
				req.Labels = map[string]string{"value": strings.Repeat("x", 1000)}
			}))
		}
		before := l.commands
		l.ran = func(r run) { sent += len(fmt.Sprint(r.reply)) }
		snap, err := driver.Glance(t.Context(), l.store, lensKey)
		l.ran = nil
		if err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != "leader" || len(snap.Waiters) != 0 {
			t.Fatalf("%+v, %v", snap, err)
		}
		return l.commands - before, sent
	}
	few, _ := look(2)
	many, sent := look(100)
	if many != few {
		t.Errorf("%d commands with 100 waiters, %d with two", many, few)
	}
	if sent > 10_000 { // the labels of the waiters are a hundred thousand bytes
		t.Errorf("the server sends %d bytes", sent)
	}
}
