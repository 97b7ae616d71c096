package session

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// bell is a timer that rings at an instant. Whoever owns it guards it.
//
// On some systems the timer stands still while the machine is suspended, and instants
// count that time. So a timer that was set before a suspension rings later than its
// instant, and does not count as set.
type bell struct {
	timer *time.Timer
	at    clock.Instant // when it rings; 0 if it does not
	ahead time.Duration // by how much the clock was ahead of the timer when that was set
}

// ringsBy reports whether it rings at the instant, or before, without being set anew.
func (b *bell) ringsBy(at clock.Instant) bool {
	return b.at != 0 && b.at <= at && b.ahead == clock.Ahead()
}

// set has it call ring at the instant, instead of any before. Ring sets at to 0.
func (b *bell) set(at, now clock.Instant, ring func()) {
	b.at, b.ahead = at, clock.Ahead()
	wait := max(time.Duration(at-now), 0)
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, ring)
		return
	}
	b.timer.Reset(wait)
}

// stop has it ring no more, unless it rings now.
func (b *bell) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
