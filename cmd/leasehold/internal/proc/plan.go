package proc

import (
	"math"
	"time"
)

// exitGrace is the time that descendants have, after the end of the command, to end without a
// signal. Only tests change it.
var exitGrace = 200 * time.Millisecond

// plan is the guard's schedule: when to send TERM and when to begin to kill. All times
// are readings of clock; 0 is never. It sends nothing itself.
type plan struct {
	grace    int64
	deadline int64 // pushed forward by the wrapper
	late     bool  // the deadline's TERM or KILL is out: it cannot be pushed any more
	term     int64 // asked for by Stop, or by the end of the child
	kill     int64
	termed   bool
	killing  bool
}

type step int

const (
	stepNone step = iota
	stepTerm
	stepKill
)

func (p *plan) setDeadline(at int64) {
	if !p.late {
		p.deadline = at
	}
}

// end schedules TERM and KILL at the given times, unless they are already due earlier.
func (p *plan) end(term, kill int64) {
	p.term = sooner(p.term, term)
	p.kill = sooner(p.kill, kill)
}

// next returns when step has something to do, 0 for never.
func (p *plan) next() int64 {
	if p.killing {
		return 0
	}
	at := sooner(p.deadline, p.kill)
	if p.termed {
		return at
	}
	return sooner(at, sooner(p.deadlineTerm(), p.term))
}

// step returns the action that is due, each action once.
func (p *plan) step(now int64) step {
	if p.killing {
		return stepNone
	}
	// Once TERM was sent for another reason the deadline may still be pushed: it
	// becomes final only if the deadline ends the command.
	p.late = p.late || due(p.deadline, now) || !p.termed && due(p.deadlineTerm(), now)
	switch {
	case due(p.deadline, now), due(p.kill, now):
		p.killing = true
		return stepKill
	case !p.termed && (p.late || due(p.term, now)):
		p.termed = true
		return stepTerm
	}
	return stepNone
}

func (p *plan) deadlineTerm() int64 {
	if p.deadline == 0 {
		return 0
	}
	return max(p.deadline-p.grace, 1)
}

// notices spaces the notices about a process that does not end. The zero value is ready.
type notices struct {
	at    int64 // of the next one
	pause time.Duration
}

const (
	firstPause = 5 * time.Second
	lastPause  = 10 * time.Minute
)

// due reports whether it is time for a notice: at once, and then after growing pauses.
func (n *notices) due(now int64) bool {
	if n.at > now {
		return false
	}
	n.pause = min(max(2*n.pause, firstPause), lastPause)
	n.at = now + int64(n.pause)
	return true
}

func due(at, now int64) bool { return at != 0 && at <= now }

// later returns the time d after at, without overflow.
func later(at, d int64) int64 { return at + min(d, math.MaxInt64/2-at) }

// sooner returns the earlier of two times. Each may be 0 for never.
func sooner(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
