package session

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/internal/timing"
)

// Terms are the settings with which one lock uses a store. They must not change while
// in use.
type Terms struct {
	TTL            time.Duration
	RenewFraction  float64 // part of the TTL after which a lease is renewed
	MaxAttempts    int     // of one renewal; 0 is unbounded
	NoRenewal      bool
	Drift          float64 // see [timing.Drift]
	ReleaseTimeout time.Duration
	MaxOutage      time.Duration // of waiting for an unavailable store; 0 is none, below 0 unbounded
	MaxTry         time.Duration // the same without waiting for a lock; 0 is [timing.TryOutage]
	MaxHold        time.Duration // 0 is unbounded
	MinHold        time.Duration
	Log            *slog.Logger
	Policy         Policy
}

// Life returns how long a lease lasts on the local clock.
func (t *Terms) Life(ttl time.Duration) time.Duration { return timing.Life(ttl, t.Drift) }

// deadline returns when a lease with this origin ends.
func (t *Terms) deadline(origin time.Time, ttl time.Duration) time.Time {
	return origin.Add(t.Life(ttl))
}

// tooLate is [timing.TooLate].
func (t *Terms) tooLate(now, origin time.Time, ttl time.Duration) bool {
	return timing.TooLate(now, origin, ttl, t.Drift)
}

// endless is the time limit of waits without bound.
const endless = 100 * 365 * 24 * time.Hour

// outage returns how much longer to wait for a store that has not answered since then.
// With MaxOutage 0 it returns how long one answer may take.
func (t *Terms) outage(since, now time.Time) time.Duration {
	switch {
	case t.MaxOutage < 0:
		return endless
	case t.MaxOutage == 0:
		return timing.TryOutage - now.Sub(since)
	}
	return t.MaxOutage - now.Sub(since)
}

// tryOutage is outage for a caller that does not wait for the lock but needs the outcome
// of its request.
func (t *Terms) tryOutage(since, now time.Time) time.Duration {
	return min(t.outage(since, now), cmp.Or(t.MaxTry, timing.TryOutage)-now.Sub(since))
}

// givesUp reports whether to give up on a store that failed, with the time left.
func (t *Terms) givesUp(left time.Duration) bool { return left <= 0 || t.MaxOutage == 0 }

// pause returns the time between two renewals of a lease.
func (t *Terms) pause(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * t.RenewFraction)
}
