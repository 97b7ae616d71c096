package server

import "time"

// Bounds and defaults of bodies.
const (
	MaxVisit      = maxVisit
	MaxTicket     = maxTicket
	DefaultTTL    = defaultTTL
	DefaultTicket = defaultTicket
)

// WithSlowness sets how long headers and bodies may take to arrive.
func WithSlowness(header, body time.Duration) Option {
	return func(c *config) error {
		c.headerTimeout, c.bodyTimeout = header, body
		return nil
	}
}

// WithConfirmWithin sets how long after an answer its connection may be reset for the
// lease to be given back.
func WithConfirmWithin(d time.Duration) Option {
	return func(c *config) error {
		c.confirmWithin = d
		return nil
	}
}

// Trail returns the number of leases and places in the audit trail, and how many of them it
// follows to their end.
func (s *Server) Trail() (known, followed int) {
	s.trail.mu.Lock()
	defer s.trail.mu.Unlock()
	for _, f := range s.trail.all {
		if f.kept {
			followed++
		}
	}
	return len(s.trail.all), followed
}
