package stores_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestQuorum_OfServersOfDifferentKindsSurvivesTheLossOfOne takes a lock on two databases and
// a Redis server, and stops one of the three.
func TestQuorum_OfServersOfDifferentKindsSurvivesTheLossOfOne(t *testing.T) {
	redis := redistest.Start(t)
	values := url.Values{"max-ttl": {"1m"}, "node": {
		postgrestest.Shared(t).URL() + "&create=true", postgrestest.Start(t).URL() + "&create=true", redis.URL(),
	}}
	d, err := stores.Open("quorum://?" + values.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	first := take(t, d, "k")
	if reply, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil || reply.State != driver.Released {
		t.Fatalf("%+v, %v", reply, err)
	}
	redis.Kill()
	if second := take(t, d, "k"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

// take takes a lock, and returns its token.
func take(t *testing.T, d driver.Driver, key string) int64 {
	t.Helper()
	var reply driver.Reply
	err := driver.ErrUnavailable
	for n := 0; n < 10 && errors.Is(err, driver.ErrUnavailable); n++ { // a node of a quorum has little time, and the machine may be busy
		reply, err = d.Acquire(t.Context(), driver.Request{Key: key, ID: "a", TTL: 10 * time.Second})
	}
	if err != nil || reply.State != driver.Granted {
		t.Fatalf("%s: %+v, %v", key, reply, err)
	}
	return reply.Token
}
