package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_BOOTTIME: one clock for all processes of the machine, never
// set, and counting while the machine sleeps, as the store's clock does.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("proc: CLOCK_BOOTTIME: " + err.Error()) // there since Linux 2.6.39
	}
	return ts.Nano()
}

// alarm rings C at an absolute time of clock. It is a timerfd and no time.Timer,
// because Go's timers stand still while the machine sleeps.
type alarm struct {
	C  chan struct{}
	fd int
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	a := &alarm{C: make(chan struct{}, 1), fd: fd}
	go a.wait()
	return a, nil
}

// wait lives as long as the guard.
func (a *alarm) wait() {
	var count [8]byte
	for {
		if _, err := unix.Read(a.fd, count[:]); err != nil {
			if err == unix.EINTR {
				continue
			}
			time.Sleep(10 * time.Millisecond) // cannot happen; a slow clock is better than a failed guard
		}
		select {
		case a.C <- struct{}{}:
		default:
		}
	}
}

// set makes C ring at the given time, soon if it is past, never if it is 0.
func (a *alarm) set(at int64) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		panic("proc: timerfd: " + err.Error()) // a guard without a clock had better die
	}
}
