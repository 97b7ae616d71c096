package session

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// prompt is a store that ends its calls by itself.
type prompt struct {
	script
	after time.Duration
}

func (p *prompt) CallTimeout() time.Duration { return p.after }

// TestBound_EndsCallsInTime: by a context of its own, by one that only tells a driver that
// looks, or not at all where the driver or the caller's context is as early.
func TestBound_EndsCallsInTime(t *testing.T) {
	const try = 4 * time.Second
	for _, c := range []struct {
		name   string
		drv    driver.Driver
		parent time.Duration // left of the caller's context; 0 is without end
		limit  time.Duration // of the call; 0 is none
		same   bool          // the context is the caller's
		told   bool          // it is only told
	}{
		{name: "a driver that does not look", drv: new(script), limit: try},
		{name: "under a later context", drv: new(script), parent: try + 1, limit: try},
		{name: "under a context that is as early", drv: new(script), parent: try, limit: try, same: true},
		{name: "under an earlier context", drv: new(script), parent: time.Second, limit: time.Second, same: true},
		{name: "a driver that looks", drv: new(prompt), limit: try, told: true},
		{name: "a driver that looks, under an earlier context", drv: new(prompt), parent: time.Second, limit: time.Second, same: true},
		{name: "a driver that ends in time", drv: &prompt{after: 5 * time.Second}, same: true},
		{name: "a driver that ends too late", drv: &prompt{after: 5*time.Second + 1}, limit: try, told: true},
		{name: "a driver that ends at once", drv: &prompt{after: 1}, same: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, new(script), func(t *testing.T, s *Session) {
				s.punctual = punctualityOf(c.drv)
				parent, cancel := t.Context(), func() {}
				if c.parent > 0 {
					parent, cancel = context.WithTimeout(parent, c.parent)
				}
				defer cancel()
				ctx, end := s.bound(parent, try)
				defer end()
				deadline, ok := ctx.Deadline()
				if ok != (c.limit > 0) || ok && time.Until(deadline) != c.limit || (ctx == parent) != c.same {
					t.Errorf("it ends after %v (%v), and is the caller's: %v", time.Until(deadline), ok, ctx == parent)
				}
				if ok {
					time.Sleep(c.limit + 1)
					if (ctx.Err() == nil) != c.told {
						t.Errorf("it has ended: %v", ctx.Err())
					}
				}
			})
		})
	}
}
