package leasehold_test

import (
	"context"
	"errors"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// glanced is a store whose whole picture is not to be asked for.
type glanced struct{ *memdriver.Driver }

func (glanced) Inspect(context.Context, string) (driver.Snapshot, error) {
	return driver.Snapshot{}, errors.New("all who wait were looked at")
}

func TestElection_HR_D7_LeaderIsToldWithoutThoseWhoWait(t *testing.T) {
	client, err := leasehold.New(glanced{memdriver.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lease, err := client.Mutex("e", leasehold.WithName("first")).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if leader, err := client.Election("e", "value").Leader(t.Context()); err != nil || leader.Owner != "first" {
		t.Errorf("%+v, %v", leader, err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	_, err = client.Election("e", "value").Leader(t.Context())
	if !errors.Is(err, leasehold.ErrNotHeld) {
		t.Errorf("%v, want ErrNotHeld", err)
	}
}
