package session

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

const (
	// alertAfter is how long a lease is held before its session listens for breaks. So
	// programs that hold locks only briefly need no subscription.
	alertAfter = time.Second
	// alertAgain is the pause after a failed attempt to listen.
	alertAgain = time.Minute
)

// alert makes a session listen for hints while it holds long leases, so that it learns of
// breaks at once. The session's mutex guards it.
type alert struct {
	on    bool // the timer is set, or no longer needed
	timer *time.Timer
}

func (a *alert) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// watchForBreaks makes the session listen once a lease is held for long. The caller holds mu.
func (s *Session) watchForBreaks() {
	if s.alert.on || !s.Hears() {
		return
	}
	s.alert.on = true
	if s.alert.timer == nil {
		s.alert.timer = time.AfterFunc(alertAfter, s.listenForBreaks)
		return
	}
	s.alert.timer.Reset(alertAfter)
}

// listenForBreaks listens if a lease has been held for long; otherwise heldLong has set the
// timer again. It runs in the timer's goroutine.
func (s *Session) listenForBreaks() {
	if !s.heldLong() {
		return
	}
	defer s.Leave()
	err := s.listener.listen()
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return // listens from now on, or never will
	}
	if !errors.Is(err, errOpening) {
		s.listener.log.Warn("leasehold: no hints: breaks are noticed at the next renewal", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.alert.timer.Reset(alertAgain)
	}
}

// heldLong reports whether a lease has been held for long. If so, it keeps the session
// from ending until Leave. Otherwise it sets the timer for the oldest lease, if any.
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
