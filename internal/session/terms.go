package session

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/internal/timing"
)

// Terms are how one lock uses a store. They are not changed once they are in use.
type Terms struct {
	TTL            time.Duration
	RenewFraction  float64 // of the TTL, after which a lease is renewed
	MaxAttempts    int     // of one renewal; 0 is without bound
	NoRenewal      bool
	Drift          float64 // see [timing.Drift]
	ReleaseTimeout time.Duration
	MaxOutage      time.Duration // for which a store that does not answer is waited for; 0 is not at all, below 0 without bound
	MaxTry         time.Duration // for which one is asked by those who do not wait; 0 is [timing.TryOutage]
	MaxHold        time.Duration // 0 is without bound
	MinHold        time.Duration
	Log            *slog.Logger
	Policy         Policy
}

// Life is how long a lease lasts on the local clock.
func (t *Terms) Life(ttl time.Duration) time.Duration { return timing.Life(ttl, t.Drift) }

// deadline is when a lease with this origin is over.
func (t *Terms) deadline(origin time.Time, ttl time.Duration) time.Time {
	return origin.Add(t.Life(ttl))
}

// tooLate is [timing.TooLate].
func (t *Terms) tooLate(now, origin time.Time, ttl time.Duration) bool {
	return timing.TooLate(now, origin, ttl, t.Drift)
}

// endless is the patience of those who wait without bound.
const endless = 100 * 365 * 24 * time.Hour

// outage is how much longer a store that has not answered since then is waited for.
// Without patience for an outage it is how long one answer may take.
func (t *Terms) outage(since, now time.Time) time.Duration {
	switch {
	case t.MaxOutage < 0:
		return endless
	case t.MaxOutage == 0:
		return timing.TryOutage - now.Sub(since)
	}
	return t.MaxOutage - now.Sub(since)
}

// tryOutage is the same for somebody who does not wait, but wants to know what has
// become of what was asked.
func (t *Terms) tryOutage(since, now time.Time) time.Duration {
	return min(t.outage(since, now), cmp.Or(t.MaxTry, timing.TryOutage)-now.Sub(since))
}

// tired reports whether a store that failed is asked no more, of whose time so much
// is left.
func (t *Terms) tired(left time.Duration) bool { return left <= 0 || t.MaxOutage == 0 }

// renewal is when a lease with this origin is renewed.
func (t *Terms) renewal(origin time.Time, ttl time.Duration) time.Time {
	return origin.Add(time.Duration(float64(ttl) * t.RenewFraction))
}
