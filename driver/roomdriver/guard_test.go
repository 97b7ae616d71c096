package roomdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// away is a table that cannot be reached once, after so many updates.
type away struct {
	*rows
	left int
	then func() // is called meanwhile
}

func (t *away) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	if t.left--; t.left == -1 {
		t.then()
		return driver.ErrUnavailable
	}
	return t.rows.Update(ctx, key, f)
}

// The mark is looked at again after the lock was taken. What fails then says nothing of the
// lock, which another request of the same visit may have reported meanwhile.
func TestGuard_HR_A2_ErrorAfterTheGrantIsNotDefinite(t *testing.T) {
	table := &away{rows: newRows(), left: 3 + 1}
	d := roomdriver.New(table)
	defer d.Close()
	if err := d.Mark(t.Context(), driver.Mark{Name: "m"}, ""); err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Key: "k", ID: "a", Visit: "v", TTL: time.Hour, Guard: true}
	table.then = func() { acquire(t, d, req, driver.Granted) }
	_, err := d.Acquire(t.Context(), req)
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrAmnesia) {
		t.Errorf("the lock is held, and the error is %v", err)
	}
	if snap, err := d.Inspect(t.Context(), "k"); err != nil || len(snap.Holders) != 1 {
		t.Errorf("a lease that was reported has ended: %+v, %v", snap.Holders, err)
	}
}
