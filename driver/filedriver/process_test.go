//go:build unix

package filedriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// A process that is stopped in its critical section keeps the lock of a shard.
func TestStoppedProcess_InTheCriticalSectionHoldsUpNobodyForEver(t *testing.T) {
	dir := t.TempDir()
	s, hasty, stopped := open(t, dir), open(t, dir, WithTimeout(200*time.Millisecond)), open(t, dir)
	stuck, free := twoShards(s)
	grant(t, s, driver.Request{Key: free, ID: "id"})
	grant(t, s, driver.Request{Key: stuck, ID: "id"})
	inside := stopped.shardOf(fileName(stuck)).lock
	noError(t, inside.lock(t.Context(), time.Minute))

	_, err := hasty.Acquire(t.Context(), driver.Request{Key: stuck, ID: "other", TTL: time.Minute})
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "stopped process") {
		t.Errorf("acquire: %v; want it unavailable, with the likely cause", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Inspect(ctx, stuck); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("inspect: %v; want it to end with its context", err)
	}
	answered := map[int]error{}
	hasty.Renew(t.Context(), []driver.Ref{{Key: stuck, ID: "id", TTL: time.Minute}, {Key: free, ID: "id", TTL: time.Minute}},
		func(i int, reply driver.Reply, err error) { answered[i] = err })
	if len(answered) != 2 || !errors.Is(answered[0], driver.ErrUnavailable) || answered[1] != nil {
		t.Errorf("renewals: %v; want only the stuck one to fail", answered)
	}

	inside.unlock()
	release(t, s, stuck, "id")
}

// twoShards returns keys of different shards.
func twoShards(s *Driver) (one, two string) {
	one = "key-0"
	for i := 1; ; i++ {
		two = fmt.Sprint("key-", i)
		if s.shardOf(fileName(two)) != s.shardOf(fileName(one)) {
			return one, two
		}
	}
}
