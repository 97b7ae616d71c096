package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// watch stands between a running command and its lease.
//
// The guard process has the deadline by which nothing of the command may be
// left, and sends TERM a grace before. All that is done here is to push it
// forward after each renewal. So a store that hangs, a process that hangs and a
// process that was stopped are one case: the deadline is not pushed.
type watch struct {
	job      *job
	lease    *grip
	deadline time.Time // the guard's; zero if the command may outlive the lease
	doubt    bool      // it was said that the lease is not confirmed
	ended    error     // why the lease ended under the command
	overdue  bool      // --at-most was exceeded
}

func newWatch(j *job, lease *grip) *watch {
	w := &watch{job: j, lease: lease}
	if j.flags.onLost == "kill" {
		w.deadline = w.limit()
	}
	return w
}

// limit is when KILL is sent at the latest. The lease's own deadline is the
// last moment at which the lock is certainly ours; a kernel under load takes
// some time to kill.
func (w *watch) limit() time.Time {
	margin := min(w.job.ttl()/20, time.Second)
	return w.lease.deadline().Add(-margin)
}

// follow returns when nothing of the command is left.
func (w *watch) follow(p *proc.Process) {
	// The lease is renewed every third of its TTL: looking this often keeps the
	// guard's deadline close to the lease's, whenever this process is stopped.
	tick := time.NewTicker(min(max(w.job.ttl()/50, 5*time.Millisecond), 500*time.Millisecond))
	defer tick.Stop()
	var atMost <-chan time.Time
	if d := time.Duration(w.job.flags.atMost); d > 0 {
		atMost = time.After(d)
	}
	over := w.lease.done()
	for {
		select {
		case <-p.Done():
			return
		case <-tick.C:
			w.look(p)
		case <-atMost:
			w.overdue = true
			w.job.say.overdue(w.lease.main, time.Duration(w.job.flags.atMost), w.job.grace)
			p.Stop(w.job.grace)
		case <-over:
			over = nil
			if w.ended == nil {
				w.end(p, w.lease.cause())
			}
		}
	}
}

// look pushes the guard's deadline forward if the lease was renewed.
func (w *watch) look(p *proc.Process) {
	if w.lease.cause() != nil {
		return // what is over is not prolonged
	}
	if limit := w.limit(); !w.deadline.IsZero() && limit.After(w.deadline) {
		w.deadline = limit
		p.SetDeadline(limit)
	}
	switch doubt := w.lease.unconfirmed(); {
	case w.ended != nil:
	case !w.deadline.IsZero() && time.Until(w.deadline) <= w.job.grace:
		w.end(p, errLate) // the guard does the same at this moment
	case doubt && !w.doubt:
		w.doubt = true
		w.job.say.unconfirmed(w.lease.main, time.Until(w.deadline.Add(-w.job.grace)))
	case !doubt && w.doubt:
		w.doubt = false
		w.job.say.confirmed(w.lease.main)
	}
}

// errLate is why a command is ended whose lease is not over yet.
var errLate = fmt.Errorf("%w: the store has not confirmed it in time", leasehold.ErrLost)

// end ends the command because its lease was lost, or is about to be.
func (w *watch) end(p *proc.Process, cause error) {
	w.ended = cause
	if w.deadline.IsZero() {
		w.job.say.lost(w.lease.main, cause, "the command runs on unprotected, as --on-lost=ignore says")
		return
	}
	w.job.say.lost(w.lease.main, cause, fmt.Sprintf("the command gets TERM now and KILL after %s", span(w.job.grace)))
	p.Stop(w.job.grace)
}

// verdict is how the whole ends. A loss outweighs everything, for the work was
// unprotected. --at-most comes next, as with timeout(1). A command that failed
// keeps its code even if the release was not confirmed: its failure is what the
// caller has to act on, and the lock frees itself.
func (w *watch) verdict(r proc.Result, guard, release error) error {
	lost := errors.Is(release, leasehold.ErrLost)
	if release == nil {
		w.job.say.released(w.lease.main)
	}
	switch {
	case w.ended != nil:
		return &exitError{code: codeLost, lost: true} // it has been said
	case lost:
		return &exitError{code: codeLost, lost: true, err: release}
	case w.overdue:
		return &exitError{code: codeOverdue, err: release}
	case r.DeadlineHit:
		return &exitError{code: codeLost, lost: true, err: fmt.Errorf("lock %q: %w; the command was ended", w.job.names[0], errLate)}
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
