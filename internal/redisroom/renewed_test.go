package redisroom

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redistest"
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
		b.must(uncontendedScript, b.store().uncontendedCommand(&driver.Ref{Key: "k", ID: "a", TTL: time.Hour, Visit: visit}, true))
		want := strings.Replace(before, `"v":"p/1",`, left, 1)
		if got := b.client.Get(ctx, b.h()).Val(); got != want || before == "" {
			t.Errorf("renewed by %s: the holder key has %s, want %s", visit, got, want)
		}
		if ttl := b.client.PTTL(ctx, b.h()).Val(); ttl < 30*time.Minute || ttl > time.Hour {
			t.Errorf("renewed by %s: it lasts for %v", visit, ttl)
		}
	}
}
