package session

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// A lease can be passed on inside the process: its Hold ends without a release, and
// another Hold begins with the remaining time.

// Onward returns the rest of an exclusive lease that has ended here, for the next holder
// in the process. It returns false if the lease must be released instead: in the store it
// is or may be shared, or may last longer than the TTL of the next lease.
func (h *Hold) Onward() (g Grant, ok bool) {
	extended := h.longest() > h.terms().TTL
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.terms()
	g = Grant{
		Token: h.token, Origin: h.s.time(h.deadline).Add(-t.Life(t.TTL)),
		Uncontended: h.uncontended, Unanswered: h.unanswered,
	}
	return g, h.mode == driver.Exclusive && !h.reader && h.lowering == 0 && !h.unsure && !extended
}

// Usable reports whether enough time is left in the grant at now to work.
func (s *Session) Usable(t *Terms, g *Grant, now time.Time) bool {
	return !t.tooLate(now, g.Origin, t.TTL)
}

// Prolong tries once, for at most limit, to renew a lease that may have no Hold at the
// moment.
func (s *Session) Prolong(ctx context.Context, t *Terms, ref driver.Ref, limit time.Duration) (g Grant, err error) {
	a, err := s.renewOnce(ctx, ref, limit)
	switch {
	case err != nil:
		return g, Unknown(err)
	case a.State != driver.Granted:
		return g, Gone(&a.Reply)
	case t.tooLate(s.Now(), a.sent, t.TTL):
		return g, timing.ErrLate
	}
	return a.Grant(), nil
}

// Unserved returns the error of a caller that waited behind w and stopped because of
// cause.
func (w *Waiter) Unserved(cause error) *Unserved { return w.giveUp(cause) }
