package session

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// A lease in the store may be passed on inside the process: its Hold ends as by a
// release, without one, and another Hold begins with what was left.

// Onward returns what is left of an exclusive lease that has ended here, for the next
// holder in the process. Onward returns false if the lease has to be released: the store has
// it as a reader's, or for longer than the TTL of the next lease, or may have.
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

// Usable reports whether a lease with this origin has time left to work in.
func (s *Session) Usable(t *Terms, g *Grant) bool { return !t.tooLate(s.Now(), g.Origin, t.TTL) }

// Prolong asks once, for at most limit, for the renewal of a lease that may have no Hold
// at the moment.
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

// Unserved is the error of somebody who has waited behind w, and does not any more
// because of cause.
func (w *Waiter) Unserved(cause error) *Unserved { return w.giveUp(cause) }
