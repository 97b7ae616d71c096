package cli

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// monitor watches a running command and its leases.
//
// The guard process has the deadline by which the command and all its descendants must be
// gone, and sends TERM one grace period before. The monitor only pushes this deadline
// forward after each renewal. If the store hangs, or this process hangs or is stopped,
// the deadline is not pushed, and the guard acts.
type monitor struct {
	cmd         *runCommand
	leases      *leaseSet
	deadline    time.Time         // the guard's; zero if the command may outlive the lease
	unconfirmed bool              // the message "unconfirmed" was printed
	ended       error             // why the lease ended under the command
	wanted      []<-chan struct{} // one closes once a waiter is queued; nil if the command gets no signal
	overdue     atomic.Bool       // --at-most was exceeded
}

func newMonitor(j *runCommand, lease *leaseSet) *monitor {
	m := &monitor{cmd: j, leases: lease}
	if j.runFlags.onLost == "kill" {
		m.deadline = m.limit()
	}
	if j.runFlags.onWanted != 0 {
		for _, l := range lease.leases {
			m.wanted = append(m.wanted, l.Wanted())
		}
	}
	return m
}

// killBefore is the time between the KILL of the guard and the end of the lease: a kernel
// under load takes time to kill.
func killBefore(ttl time.Duration) time.Duration { return min(ttl/20, time.Second) }

// limit is when the guard sends KILL.
func (m *monitor) limit() time.Time { return m.leases.deadline().Add(-killBefore(m.cmd.ttl())) }

// follow returns when the command and all its descendants are gone. It calls each at the rate
// of ticks, and over once when ended is closed. A lease is renewed every third of its TTL: at
// the rate of ticks the guard's deadline stays close to the lease's, even if this process is
// stopped at any moment.
func follow(p *proc.Process, ttl time.Duration, ended <-chan struct{}, each, over func()) {
	tick := time.NewTicker(min(max(ttl/50, 5*time.Millisecond), 500*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.Done():
			return
		case <-tick.C:
			each()
		case <-ended:
			ended = nil
			over()
		}
	}
}

// follow watches the command until all its processes are gone.
func (m *monitor) follow(p *proc.Process) {
	if limit := time.Duration(m.cmd.runFlags.atMost); limit > 0 {
		late := time.AfterFunc(limit, func() {
			m.overdue.Store(true)
			m.cmd.report.overdue(m.leases.main, limit, m.cmd.grace)
			p.Stop(m.cmd.grace)
		})
		defer late.Stop()
	}
	follow(p, m.cmd.ttl(), m.leases.done(), func() { m.look(p) }, func() {
		if m.ended == nil {
			m.end(p, m.leases.cause())
		}
	})
}

// look pushes the guard's deadline forward if the lease was renewed, and signals a waiter to
// the command.
func (m *monitor) look(p *proc.Process) {
	if m.leases.cause() != nil {
		return // the deadline of a lost lease does not change
	}
	if slices.ContainsFunc(m.wanted, closed) {
		m.wanted = nil
		m.cmd.report.wanted(m.leases.main, m.cmd.runFlags.onWanted)
		p.Signal(syscall.Signal(m.cmd.runFlags.onWanted))
	}
	if limit := m.limit(); !m.deadline.IsZero() && limit.After(m.deadline) {
		m.deadline = limit
		p.SetDeadline(limit)
	}
	switch doubt := m.leases.unconfirmed(); {
	case m.ended != nil:
	case !m.deadline.IsZero() && time.Until(m.deadline) <= m.cmd.grace:
		m.end(p, errLate) // the guard acts at the same moment
	case doubt && !m.unconfirmed:
		m.unconfirmed = true
		m.cmd.report.unconfirmed(m.leases.main, time.Until(m.deadline.Add(-m.cmd.grace)))
	case !doubt && m.unconfirmed:
		m.unconfirmed = false
		m.cmd.report.confirmed(m.leases.main)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// errLate is the loss that ends a command before its lease is over.
var errLate = fmt.Errorf("%w: the store has not confirmed it in time", leasehold.ErrLost)

// end ends the command because its lease was lost, or is about to be.
func (m *monitor) end(p *proc.Process, cause error) {
	m.ended = cause
	if m.deadline.IsZero() {
		m.cmd.report.lost(m.leases.main, cause, "the command runs on unprotected, as --on-lost=ignore says")
		return
	}
	m.cmd.report.lost(m.leases.main, cause, fmt.Sprintf("the command gets TERM now and KILL after %s", span(m.cmd.grace)))
	p.Stop(m.cmd.grace)
}

// verdict returns the error of the whole run. A loss comes first, because the work was
// unprotected. --at-most comes next, as with timeout(1). A command that failed keeps its
// code even if the release was not confirmed: the caller has to act on its failure, and
// the lock frees itself.
func (m *monitor) verdict(r proc.Result, guard, release error) error {
	lost := errors.Is(release, leasehold.ErrLost)
	if release == nil {
		m.cmd.report.released(m.leases.main)
	}
	switch {
	case m.ended != nil:
		return &exitError{code: codeLost, lost: true} // it was reported already
	case lost:
		return &exitError{code: codeLost, lost: true, err: release}
	case m.overdue.Load():
		return &exitError{code: codeOverdue, err: release}
	case r.DeadlineHit:
		return &exitError{code: codeLost, lost: true, err: fmt.Errorf("lock %q: %w; the command was ended", m.cmd.names[0], errLate)}
	case guard != nil:
		return &exitError{code: r.Code, err: errors.Join(guard, release)}
	case r.Code == 0 && release != nil:
		return &exitError{code: codeUnreleased, err: release}
	case r.Code == 0:
		return nil
	case r.Interrupted:
		return &exitError{code: r.Code, err: release, die: r.Signal}
	}
	return &exitError{code: r.Code, err: release}
}
