package redisroom_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// names is how many names are used once.
var names = 20_000

// R3
func TestNamesUsedOnce_R3_Soak_LeaveNothingThatStays(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	d := newStore(t, s)
	n := names
	if testing.Short() {
		n /= 5
	}
	for i := range n {
		key := fmt.Sprint("name", i)
		if _, err := d.Acquire(background, request(key, "a")); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 { // someone waited, and left
			if _, err := d.Acquire(background, waiting(key, "b", "")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Release(background, driver.Ref{Key: key, ID: "b"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Release(background, driver.Ref{Key: key, ID: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	left := 0
	for keys := s.Client().Scan(background, 0, "*", 10_000).Iterator(); keys.Next(background); {
		left++
		if left%50 == 0 { // a sample
			if ttl := s.Client().PTTL(background, keys.Val()).Val(); ttl <= 0 || ttl > time.Hour+life {
				t.Fatalf("%q lives for %v, want an hour and a lease at most", keys.Val(), ttl)
			}
		}
	}
	if left != n {
		t.Errorf("%d keys are left, want one token for each of %d names", left, n)
	}
	if n := s.Info(t, "keyspace")["db0"]; n != "" {
		var keys, expires int
		if _, err := fmt.Sscanf(n, "keys=%d,expires=%d", &keys, &expires); err != nil || keys != expires {
			t.Errorf("%s: %d keys never expire (%v)", n, keys-expires, err)
		}
	}
}
