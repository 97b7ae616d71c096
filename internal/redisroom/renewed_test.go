package redisroom

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
)

// TestRenew_AnAnswerThatIsNotOneForEachLeaseIsNone: damage in the answer for one lease does not
// affect the answers for others.
func TestRenew_AnAnswerThatIsNotOneForEachLeaseIsNone(t *testing.T) {
	for reply, want := range map[any]string{
		"7,,9":      "0:7 2:9 left:[1]",
		",,":        "left:[0 1 2]",
		"7,8,9":     "0:7 1:8 2:9 left:[]",
		"7,x,9":     "0:7 1:damaged 2:9 left:[]",
		"7,8":       "0:damaged 1:damaged 2:damaged left:[]",
		"7,8,9,":    "0:damaged 1:damaged 2:damaged left:[]",
		"":          "0:damaged 1:damaged 2:damaged left:[]",
		int64(7):    "0:damaged 1:damaged 2:damaged left:[]",
		any(nil):    "0:damaged 1:damaged 2:damaged left:[]",
		[1]string{}: "0:damaged 1:damaged 2:damaged left:[]",
	} {
		var got strings.Builder
		g := &renewal{which: []int{0, 1, 2}, script: renewUncontended}
		others := g.deliver(Answer{Reply: reply}, func(i int, r driver.Reply, err error) {
			switch {
			case errors.Is(err, errReply):
				fmt.Fprintf(&got, "%d:damaged ", i)
			case err == nil && r.State == driver.Granted && r.Uncontended && r.Holds == 1:
				fmt.Fprintf(&got, "%d:%d ", i, r.Token)
			default:
				t.Errorf("%v: %+v, %v", reply, r, err)
			}
		})
		fmt.Fprintf(&got, "left:%v", others)
		if got.String() != want {
			t.Errorf("%v is read as %s, want %s", reply, got.String(), want)
		}
	}
}
