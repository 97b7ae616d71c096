package session

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// alarmTimer is a timer for an instant. The owner's lock guards it.
//
// On some systems timers stand still while the machine is suspended, but instants count
// that time. A timer that was set before a suspension would be late, so firesBy ignores it.
type alarmTimer struct {
	timer *time.Timer
	at    clock.Instant // when it fires; 0 if it is not set
	ahead time.Duration // lead of the clock over timers when it was set
}

// firesBy reports whether the timer already fires at the instant or earlier.
func (b *alarmTimer) firesBy(at clock.Instant) bool {
	return b.at != 0 && b.at <= at && b.ahead == clock.Ahead()
}

// set makes the timer call fire at the instant, replacing any earlier setting. fire sets
// at to 0.
func (b *alarmTimer) set(at, now clock.Instant, fire func()) {
	b.at, b.ahead = at, clock.Ahead()
	wait := max(time.Duration(at-now), 0)
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, fire)
		return
	}
	b.timer.Reset(wait)
}

// stop stops the timer. A call of fire may already be running.
func (b *alarmTimer) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
