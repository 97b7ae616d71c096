package session

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// bell is a timer for an instant. The owner's lock guards it.
//
// On some systems timers stand still while the machine is suspended, but instants count
// that time. A timer that was set before a suspension would be late, so ringsBy ignores it.
type bell struct {
	timer *time.Timer
	at    clock.Instant // when it rings; 0 if it is not set
	ahead time.Duration // lead of the clock over timers when it was set
}

// ringsBy reports whether the bell already rings at the instant or earlier.
func (b *bell) ringsBy(at clock.Instant) bool {
	return b.at != 0 && b.at <= at && b.ahead == clock.Ahead()
}

// set makes the bell call ring at the instant, replacing any earlier setting. ring sets
// at to 0.
func (b *bell) set(at, now clock.Instant, ring func()) {
	b.at, b.ahead = at, clock.Ahead()
	wait := max(time.Duration(at-now), 0)
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, ring)
		return
	}
	b.timer.Reset(wait)
}

// stop stops the timer. A call of ring may already be running.
func (b *bell) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
