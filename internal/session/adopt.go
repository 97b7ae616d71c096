package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// What is asked of a store about a lease that was taken elsewhere. began is when the
// first question was to be asked: the time for which a store is asked that does not
// answer counts from there.

// Confirm renews the lease that ref names until the store has answered. The error
// matches ErrNotHeld if it is not there.
func (s *Session) Confirm(ctx context.Context, t *Terms, ref driver.Ref, began time.Time) (g Grant, err error) {
	a := Answer{began: began}
	uncertain := false
	for attempt := 1; ; attempt++ {
		a.sent = s.Now()
		try, cancel := s.bound(ctx, timing.Try(1, s.patience(&a, t, nil)))
		err = errors.New("the store said nothing of it")
		s.renew(try, []driver.Ref{ref}, func(_ int, reply driver.Reply, e error) { a.Reply, err = reply, e })
		cancel()
		if err == nil && a.State == driver.Granted && t.tooLate(s.Now(), a.sent, t.TTL) {
			err = timing.ErrLate
		}
		switch {
		case err == nil && a.State == driver.Granted:
			return a.Grant(), nil
		case err == nil && a.Broken:
			return g, fmt.Errorf("%w: %w", ErrNotHeld, Broken(a.Reason))
		case err == nil:
			return g, ErrNotHeld
		}
		uncertain = uncertain || !timing.Definite(err)
		if timing.Permanent(err) || t.tired(s.patience(&a, t, nil)) || !s.sleep(ctx, timing.BackOff(attempt)) {
			if uncertain {
				err = unknown(err)
			}
			return g, s.because(ctx, err)
		}
	}
}

// Inspect looks at a lock until that is answered: a reader's lease must not be taken
// for a writer's because an answer was lost.
func (s *Session) Inspect(ctx context.Context, t *Terms, store driver.Inspector, key string, began time.Time) (driver.Snapshot, error) {
	a := Answer{began: began}
	for attempt := 1; ; attempt++ {
		try, cancel := s.bound(ctx, timing.Try(1, s.patience(&a, t, nil)))
		snap, err := store.Inspect(try, key)
		cancel()
		if err == nil || timing.Permanent(err) {
			return snap, err
		}
		if t.tired(s.patience(&a, t, nil)) || !s.sleep(ctx, timing.BackOff(attempt)) {
			return snap, s.because(ctx, Unknown(err))
		}
	}
}
