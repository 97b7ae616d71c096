package httpdriver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// A request that the service's store did not answer may still arrive, and lock again after the
// release, even if a repetition was granted. So the reply has InFlight.
func TestAcquire_TellsOfWhatTheServiceHasOnItsWay(t *testing.T) {
	d := answering(t, &canned{200, "application/json", []byte(`{"leaseId":"a","state":"` + wire.StateName(driver.Granted) + `","token":7,"holds":1,"again":true,"repeated":true}`)})
	reply, err := d.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Second})
	if err != nil || !reply.InFlight {
		t.Errorf("%+v, %v", reply, err)
	}
}

// slow is a store whose first request from a client other than the holder arrives late.
type slow struct {
	driver.Driver

	mu   sync.Mutex
	late *driver.Request
}

func (s *slow) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == nil && req.ID != "holder" {
		s.late = &req
		return driver.Reply{}, errors.New("no answer")
	}
	return s.Driver.Acquire(ctx, req)
}

// The service asks its store twice, and the second time the lock is held. The first request is
// still on its way, and must not lock for a client that has gone.
func TestTryLock_RefusedByTheServiceAfterATryWithoutAnAnswerLeavesNothing(t *testing.T) {
	store := &slow{Driver: memdriver.New()}
	ask.Acquire(t, store, request("k", "holder"), driver.Granted)
	client := clientOf(t, open(t, listen(t, service(t, store))))
	if _, err := client.Mutex("k").TryLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	noErr(t, client.Close()) // waits for the undo
	ask.Release(t, store, "k", "holder")
	if reply, err := store.Acquire(t.Context(), *store.late); err != nil || reply.State == driver.Granted {
		t.Errorf("the late request: state %d, %v; want it refused", reply.State, err)
	}
}
