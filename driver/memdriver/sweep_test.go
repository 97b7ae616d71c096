package memdriver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestStore_R3_ForgetsNamesUsedOnce reads the map, since no call shows the memory that must
// be free.
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
			if i%2 == 0 { // the other leases expire
				_, _ = s.Release(t.Context(), driver.Ref{Key: key, ID: id, RejectIDFor: time.Duration(i%10) * time.Second})
			}
		}
		rooms := func(when string, want int) {
			t.Helper()
			s.table.mu.Lock()
			defer s.table.mu.Unlock()
			if n := len(s.table.rooms); n != want {
				t.Fatalf("%s: %d rooms are remembered, want %d", when, n, want)
			}
		}
		rooms("after the releases", 18_000) // 10 000 are held, and 8 000 reject an id
		time.Sleep(2*memory + time.Second)
		rooms("later", 0)
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
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		if len(s.table.rooms) != 0 || s.table.sweeping {
			t.Fatalf("%d rooms are remembered, sweeping: %v", len(s.table.rooms), s.table.sweeping)
		}
	})
}
