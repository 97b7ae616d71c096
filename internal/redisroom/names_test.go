package redisroom_test

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestNamesUsedOnce_P9_R3_LeaveNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	d := newStore(t, s)
	for i := range 4000 {
		key := fmt.Sprint("name", i)
		acquire(t, d, request(key, "a"), driver.Granted)
		if i%10 == 0 { // someone waited, and left
			acquire(t, d, waiting(key, "b", ""), driver.Queued)
			release(t, d, key, "b", driver.Left)
		}
		release(t, d, key, "a", driver.Released)
	}
	if keys := s.Client().Keys(background, "*").Val(); len(keys) != 1 {
		t.Errorf("%.10q are left, want the counter alone", keys)
	}
}
