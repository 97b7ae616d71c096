package memdriver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestStore_R3_ForgetsNamesUsedOnce looks into the map, since memory that nobody
// can ask for is what must not be there.
func TestStore_R3_ForgetsNamesUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		last := make(map[string]int64)
		for i := range 20_000 {
			key, id := fmt.Sprint("order/", i), fmt.Sprint("lease-", i)
			reply, err := s.Acquire(t.Context(), driver.Request{Key: key, ID: id, TTL: time.Second})
			if err != nil || reply.State != driver.Granted {
				t.Fatalf("%+v, %v", reply, err)
			}
			last[key] = reply.Token
			if i%2 == 0 { // the others expire
				_, _ = s.Release(t.Context(), driver.Ref{Key: key, ID: id, Forbid: time.Duration(i%10) * time.Second})
			}
		}
		time.Sleep(2*memory + time.Second)
		s.mu.Lock()
		left := len(s.rooms)
		s.mu.Unlock()
		if left != 0 {
			t.Fatalf("%d rooms are remembered", left)
		}
		for key, token := range last {
			reply, _ := s.Acquire(t.Context(), driver.Request{Key: key, ID: "again", TTL: time.Second})
			if reply.Token <= token {
				t.Fatalf("%s: token %d follows %d, which was forgotten", key, reply.Token, token)
			}
		}
	})
}

func TestStore_RemembersAFutureTokenUntilTheClockHasPassedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		ref := driver.Ref{Key: "k", ID: "a"}
		first, _ := s.Acquire(t.Context(), driver.Request{
			Key: "k", ID: "a", TTL: time.Second, MinToken: time.Now().Add(3 * time.Hour).UnixMicro(),
		})
		_, _ = s.Release(t.Context(), ref)
		time.Sleep(2 * time.Hour)
		second, _ := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "b", TTL: time.Second})
		if second.Token != first.Token+1 {
			t.Fatalf("token %d follows %d", second.Token, first.Token)
		}
		time.Sleep(3 * time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.rooms) != 0 || s.sweeping {
			t.Fatalf("%d rooms are remembered, sweeping: %v", len(s.rooms), s.sweeping)
		}
	})
}
