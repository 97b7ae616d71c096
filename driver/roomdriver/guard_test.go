package roomdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// away is a table that cannot be reached after so many updates.
type away struct {
	*rows
	left int
	gone context.CancelFunc // of the caller, who goes with it
}

func (t *away) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	if t.left == 0 {
		return driver.ErrUnavailable
	}
	if t.left--; t.left == 0 && t.gone != nil {
		defer t.gone()
	}
	return t.rows.Update(ctx, key, f)
}

// The mark is looked at again after the lock was taken; what fails then says nothing
// of the lock.
func TestGuard_HR_A2_ErrorAfterTheGrantIsNotDefinite(t *testing.T) {
	r := newRows()
	d := roomdriver.New(&away{rows: r, left: 3 + 1})
	defer d.Close()
	if err := d.Mark(t.Context(), driver.Mark{Name: "m"}, ""); err != nil {
		t.Fatal(err)
	}
	_, err := d.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Hour, Guard: true})
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrAmnesia) {
		t.Errorf("the lock is held, and the error is %v", err)
	}
}

// The caller's context ends as soon as the lock was taken.
func TestGuard_HR_A2_GrantIsGivenBackThoughItsContextHasEnded(t *testing.T) {
	r := newRows()
	table := &away{rows: r, left: -1}
	d := roomdriver.New(table)
	defer d.Close()
	if err := d.Mark(t.Context(), driver.Mark{Name: "m"}, ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	table.left, table.gone = 3, func() { cancel(); table.left = -1 }
	if _, err := d.Acquire(ctx, driver.Request{Key: "k", ID: "a", TTL: time.Hour, Guard: true}); err == nil {
		t.Fatal("no error")
	}
	if snap, err := d.Inspect(t.Context(), "k"); err != nil || len(snap.Holders) > 0 {
		t.Errorf("%+v, %v", snap.Holders, err)
	}
}
