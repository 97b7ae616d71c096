package session

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

const (
	// alertAfter is how long a lease is held before its session listens for breaks: a
	// program that takes short locks pays nothing for it.
	alertAfter = time.Second
	// alertAgain is when a session tries again that could not listen.
	alertAgain = time.Minute
)

// alert has a session that holds leases hear at once that one was broken. It has one
// timer, and is guarded by the session's mutex.
type alert struct {
	on    bool // the timer is set, or nothing is left for it to do
	timer *time.Timer
}

func (a *alert) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// beAlert has the session listen if it holds leases for long. The caller holds mu.
func (s *Session) beAlert() {
	if s.alert.on || !s.Hears() {
		return
	}
	s.alert.on = true
	if s.alert.timer == nil {
		s.alert.timer = time.AfterFunc(alertAfter, s.lookOut)
		return
	}
	s.alert.timer.Reset(alertAfter)
}

// lookOut listens if there is a lease that is held for long, and is called again when
// there may be. It runs in a goroutine of the timer's.
func (s *Session) lookOut() {
	if !s.heldLong() {
		return
	}
	defer s.Leave()
	err := s.listener.listen()
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return // listens from now on, or never will
	}
	if !errors.Is(err, errOpening) {
		s.listener.log.Warn("leasehold: breaks of leases are noticed when these are renewed", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.alert.timer.Reset(alertAgain)
	}
}

// heldLong reports whether a lease is held for long. If so the session is kept from
// ending until Leave, and otherwise the timer is set to when one will be, if there is one.
func (s *Session) heldLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	now, oldest := s.instant(s.Now()), clock.Instant(0)
	for _, h := range s.holds {
		if oldest == 0 || h.granted < oldest {
			oldest = h.granted
		}
		if now-oldest >= clock.Instant(alertAfter) {
			s.busy++
			return true
		}
	}
	if oldest == 0 {
		s.alert.on = false // the next lease sets the timer
	} else {
		s.alert.timer.Reset(alertAfter - time.Duration(now-oldest))
	}
	return false
}
