package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Requests about a lease that was acquired elsewhere. began is when the first request was
// due; the time limit for an unavailable store counts from there.

// Confirm renews the lease of ref, and repeats that until the store answers. The error
// matches ErrNotHeld if the lease does not exist.
func (s *Session) Confirm(ctx context.Context, t *Terms, ref driver.Ref, began time.Time) (g Grant, _ error) {
	a := Answer{began: began}
	uncertain := false
	for attempt := 1; ; attempt++ {
		once, err := s.renewOnce(ctx, ref, timing.Try(1, s.timeLeft(&a, t, s.Now())))
		a.Reply, a.sent = once.Reply, once.sent
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
		if timing.Permanent(err) || t.givesUp(s.timeLeft(&a, t, s.Now())) || !s.sleep(ctx, timing.BackOff(attempt)) {
			if uncertain {
				err = earlierUnknown(err)
			}
			return g, s.withCause(ctx, err)
		}
	}
}

// Park keeps the place of req in the queue for another life, for a waiter that stopped
// and may return. The ticket gets no hint address, because a hand-over would not be
// confirmed. Park returns the store's answer.
func (s *Session) Park(ctx context.Context, t *Terms, req *driver.Request, life time.Duration) (Answer, error) {
	return s.renewOnce(t.Policy.call(ctx), driver.Ref{Key: req.Key, ID: req.ID, TTL: req.TTL, TicketTTL: life}, t.MaxOutage)
}

// renewOnce renews one lease or ticket, for at most limit.
func (s *Session) renewOnce(ctx context.Context, ref driver.Ref, limit time.Duration) (a Answer, err error) {
	a.sent = s.Now()
	ctx, cancel := s.bound(ctx, limit)
	defer cancel()
	err = errors.New("the driver returned no result")
	s.renew(ctx, []driver.Ref{ref}, func(_ int, reply driver.Reply, e error) { a.Reply, err = reply, e })
	return a, err
}

// Inspect reads a lock and repeats that until the store answers, so that a lost answer
// does not make a reader's lease look like a writer's.
func (s *Session) Inspect(ctx context.Context, t *Terms, store driver.Inspector, key string, began time.Time) (driver.Snapshot, error) {
	a := Answer{began: began}
	for attempt := 1; ; attempt++ {
		try, cancel := s.bound(ctx, timing.Try(1, s.timeLeft(&a, t, s.Now())))
		snap, err := store.Inspect(try, key)
		cancel()
		if err == nil || timing.Permanent(err) {
			return snap, err
		}
		if t.givesUp(s.timeLeft(&a, t, s.Now())) || !s.sleep(ctx, timing.BackOff(attempt)) {
			return snap, s.withCause(ctx, Unknown(err))
		}
	}
}
