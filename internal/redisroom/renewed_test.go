package redisroom

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// A lease is renewed by its holder key alone while its slot moves: that spares it as every
// other renewal does, and neither shortens it nor has it last for ever.
func TestRenew_HR_A5_ByTheHolderKeyAloneNamesTheVisit(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, client: redistest.Start(t).Client()}
	ctx := context.Background()
	for visit, left := range map[string]string{"p/1": `"v":"p/1",`, "p/2": `"v":"p",`, "q": ""} {
		b.prefix = "renewed " + visit + ":"
		b.enter("a", func(req *driver.Request) { req.Visit = "p/1" })
		before := b.client.Get(ctx, b.h()).Val()
		b.must(uncontendedScript, b.store().uncontendedCommand(&driver.Ref{Key: "k", ID: "a", TTL: time.Hour, Visit: visit}, true).take())
		want := strings.Replace(before, `"v":"p/1",`, left, 1)
		if got := b.client.Get(ctx, b.h()).Val(); got != want || before == "" {
			t.Errorf("renewed by %s: the holder key has %s, want %s", visit, got, want)
		}
		if ttl := b.client.PTTL(ctx, b.h()).Val(); ttl < 30*time.Minute || ttl > time.Hour {
			t.Errorf("renewed by %s: it lasts for %v", visit, ttl)
		}
	}
}

// What a damaged answer says of one lease is no answer for another.
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
		others := g.told(Answer{Reply: reply}, func(i int, r driver.Reply, err error) {
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
