package redisroom_test

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// names is how many names are used once.
var names = 20_000

// P9, R3
func TestNamesUsedOnce_P9_Soak_LeaveNothing(t *testing.T) {
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
	if keys := s.Client().Keys(background, "*").Val(); len(keys) != 1 {
		t.Errorf("%.10q are left, want the counter alone", keys)
	}
}
