//go:build soak

package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestSoak_FiveThousandWaitingClientsAreCheap(t *testing.T) { weighWaiters(t, 5000) }

// TestSoak_TenThousandClientsThatVanishLeaveNothing: no ticket and no goroutine remains, and
// Redis keeps only the fencing counter, which expires.
func TestSoak_TenThousandClientsThatVanishLeaveNothing(t *testing.T) {
	redis := redistest.Start(t)
	d, err := rueidisdriver.Open(redis.URL())
	noErr(t, err)
	vanishing(t, d, 10_000, 1000)
	for _, key := range redis.Keys(t) {
		ttl := redis.Client().PTTL(context.Background(), key).Val()
		if !strings.Contains(key, "\x1f") || ttl <= 0 || ttl > time.Hour+2*time.Minute {
			t.Errorf("left: %q for %v", key, ttl)
		}
	}
}
