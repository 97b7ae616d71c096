package session

import (
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
	MaxOutage      time.Duration // for which a store that does not answer is asked
	MaxHold        time.Duration // 0 is without bound
	MinHold        time.Duration
	Log            *slog.Logger
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

// renewal is when a lease with this origin is renewed.
func (t *Terms) renewal(origin time.Time, ttl time.Duration) time.Time {
	return origin.Add(time.Duration(float64(ttl) * t.RenewFraction))
}
