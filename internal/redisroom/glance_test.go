package redisroom_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestGlance_HR_D7_CostsTheSameHoweverManyWait inspects the holder in front of many candidates,
// each with labels of a kilobyte.
func TestGlance_HR_D7_CostsTheSameHoweverManyWait(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		key, queued := t.Name(), 0
		acquire(t, d, request(key, "leader"), driver.Granted)
		look := func(waiters int) (commands, sent int64) {
			for ; queued < waiters; queued++ {
				req := waiting(key, fmt.Sprint("w", queued), "ears")
				req.Labels = map[string]string{"value": strings.Repeat("x", 1000)}
				acquire(t, d, req, driver.Queued)
			}
			glance := func() {
				snap, err := driver.Glance(background, d, key)
				if err != nil || len(snap.Holders) != 1 || snap.Holders[0].ID != "leader" || len(snap.Waiters) != 0 {
					t.Fatalf("%+v, %v", snap, err)
				}
			}
			glance() // loads the script
			output := func() int64 { return number(t, s, "stats", "total_net_output_bytes") }
			before := output()
			for _, n := range s.Calls(t, glance) {
				commands += n
			}
			return commands, output() - before
		}
		few, _ := look(2)
		many, sent := look(1000)
		if many != few {
			t.Errorf("%d commands with 1000 waiters, %d with two", many, few)
		}
		if sent > 100_000 { // the labels of the waiters are a million bytes
			t.Errorf("the server sent %d bytes", sent)
		}
	})
}
