package httpdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
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

// The service asks its store twice, and the second time the lock is held. The first request is
// still on its way, and must not lock for a client that has gone.
func TestTryLock_RefusedByTheServiceAfterATryWithoutAnAnswerLeavesNothing(t *testing.T) {
	var late *driver.Request
	type sender = func(context.Context) error
	store := intercept.New(memdriver.New(), func(ctx context.Context, m *intercept.Message, send sender) error {
		if m.Verb == intercept.Acquire && m.Request.ID != "holder" && late == nil {
			late = &m.Request
			return errors.New("no answer")
		}
		return send(ctx)
	})
	ask.Acquire(t, store, request("k", "holder"), driver.Granted)
	client := clientOf(t, open(t, listen(t, service(t, store))))
	if _, err := client.Mutex("k").TryLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	noErr(t, client.Close()) // waits for the undo
	ask.Release(t, store, "k", "holder")
	if reply, err := store.Acquire(t.Context(), *late); err != nil || reply.State == driver.Granted {
		t.Errorf("the late request: state %d, %v; want it refused", reply.State, err)
	}
}

// The client learns the bound of the service, and of the quorum behind it, only from its answer.
func TestExtend_P3_BeyondWhatTheServiceAllowsChangesNothing(t *testing.T) {
	majority, err := quorumdriver.New([]driver.Driver{memdriver.New(), memdriver.New(), memdriver.New()})
	noErr(t, err)
	for name, c := range map[string]struct {
		store driver.Driver
		opts  []server.Option
		want  error
	}{
		"of itself":   {memdriver.New(), []server.Option{server.WithMaxTTL(10 * time.Minute)}, leasehold.ErrInvalid},
		"by a quorum": {majority, nil, leasehold.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, listen(t, service(t, c.store, c.opts...)))
			client := clientOf(t, d, leasehold.WithTTL(time.Minute), leasehold.WithMaxRenewAttempts(1))
			all, err := leasehold.All(client.Mutex("a"), client.Mutex("b")).Lock(t.Context())
			noErr(t, err)
			if err := all.Extend(t.Context(), time.Hour); !errors.Is(err, c.want) || errors.Is(err, leasehold.ErrNotHeld) {
				t.Errorf("extended to an hour: %v, want %v", err, c.want)
			}
			if err := all.Extend(t.Context(), 5*time.Minute); err != nil {
				t.Errorf("extended by an allowed time: %v", err)
			}
			if err := all.Extend(t.Context(), time.Hour); !errors.Is(err, c.want) {
				t.Errorf("extended to an hour again: %v, want %v", err, c.want)
			}
			for _, l := range all.Parts() {
				if l.Remaining() < 4*time.Minute || l.State() != leasehold.Held {
					t.Errorf("%s: %v, %v left", l.Key(), l.State(), l.Remaining())
				}
			}
			noErr(t, all.Release())
		})
	}
}
