package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which on macOS counts while the machine sleeps.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("proc: CLOCK_MONOTONIC: " + err.Error())
	}
	return ts.Nano()
}

// alarm rings C at an absolute time of clock.
type alarm struct {
	C chan struct{}
	t *time.Timer
}

// alarmLook bounds how late an alarm is after the machine slept, since Go's
// timers stand still during that time.
const alarmLook = 500 * time.Millisecond

func newAlarm() (*alarm, error) {
	a := &alarm{C: make(chan struct{}, 1)}
	a.t = time.AfterFunc(time.Hour, func() {
		select {
		case a.C <- struct{}{}:
		default:
		}
	})
	a.t.Stop()
	return a, nil
}

// set makes C ring at the given time or earlier, never if it is 0.
func (a *alarm) set(at int64) {
	if at == 0 {
		a.t.Stop()
		return
	}
	a.t.Reset(min(time.Duration(at-clock()), alarmLook))
}
