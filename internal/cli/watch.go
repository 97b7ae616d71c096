package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/proc"
)

// watch stands between a running command and its lease.
//
// The guard process has the deadline by which nothing of the command may be
// left, and sends TERM a grace before. All that is done here is to push it
// forward after each renewal. So a store that hangs, a process that hangs and a
// process that was stopped are one case: the deadline is not pushed.
type watch struct {
	job      *job
	lease    *leasehold.Lease
	deadline time.Time // the guard's; zero if the command may outlive the lease
	doubt    bool      // it was said that the lease is not confirmed
	ended    error     // why the lease ended under the command
	overdue  bool      // --at-most was exceeded
}

func newWatch(j *job, lease *leasehold.Lease) *watch {
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
	margin := min(w.job.ttl/20, time.Second)
	return w.lease.Deadline().Add(-margin)
}

// follow returns when nothing of the command is left.
func (w *watch) follow(p *proc.Process) {
	// The lease is renewed every third of its TTL: looking this often keeps the
	// guard's deadline close to the lease's, whenever this process is stopped.
	tick := time.NewTicker(min(max(w.job.ttl/50, 5*time.Millisecond), 500*time.Millisecond))
	defer tick.Stop()
	var atMost <-chan time.Time
	if d := time.Duration(w.job.flags.atMost); d > 0 {
		atMost = time.After(d)
	}
	over := w.lease.Context().Done()
	for {
		select {
		case <-p.Done():
			return
		case <-tick.C:
			w.look(p)
		case <-atMost:
			w.overdue = true
			w.job.say.overdue(w.lease, time.Duration(w.job.flags.atMost), w.job.grace)
			p.Stop(w.job.grace)
		case <-over:
			over = nil
			if w.ended == nil {
				w.end(p, context.Cause(w.lease.Context()))
			}
		}
	}
}

// look pushes the guard's deadline forward if the lease was renewed.
func (w *watch) look(p *proc.Process) {
	if w.lease.Context().Err() != nil {
		return // what is over is not prolonged
	}
	if limit := w.limit(); !w.deadline.IsZero() && limit.After(w.deadline) {
		w.deadline = limit
		p.SetDeadline(limit)
	}
	switch doubt := w.lease.State() == leasehold.Unconfirmed; {
	case w.ended != nil:
	case !w.deadline.IsZero() && time.Until(w.deadline) <= w.job.grace:
		w.end(p, errLate) // the guard does the same at this moment
	case doubt && !w.doubt:
		w.doubt = true
		w.job.say.unconfirmed(w.lease, time.Until(w.deadline.Add(-w.job.grace)))
	case !doubt && w.doubt:
		w.doubt = false
		w.job.say.confirmed(w.lease)
	}
}

// errLate is why a command is ended whose lease is not over yet.
var errLate = fmt.Errorf("%w: the store has not confirmed it in time", leasehold.ErrLost)

// end ends the command because its lease was lost, or is about to be.
func (w *watch) end(p *proc.Process, cause error) {
	w.ended = cause
	if w.deadline.IsZero() {
		w.job.say.lost(w.lease, cause, "the command runs on unprotected, as --on-lost=ignore says")
		return
	}
	w.job.say.lost(w.lease, cause, fmt.Sprintf("the command gets TERM now and KILL after %s", span(w.job.grace)))
	p.Stop(w.job.grace)
}

// release gives the lease back. One that was lost has nothing to give, and one
// that is about to be is over sooner than a silent store would be given up;
// unless it was renewed at the last moment, too late for the command.
func (w *watch) release() error {
	if left := w.lease.Remaining(); w.ended != nil && left < time.Second {
		select {
		case <-w.lease.Context().Done():
			return w.ended
		case <-time.After(left + 50*time.Millisecond):
		}
	}
	return w.lease.Release()
}

// verdict is how the whole ends. A loss outweighs everything, for the work was
// unprotected. --at-most comes next, as with timeout(1). A command that failed
// keeps its code even if the release was not confirmed: its failure is what the
// caller has to act on, and the lock frees itself.
func (w *watch) verdict(r proc.Result, guard, release error) error {
	lost := errors.Is(release, leasehold.ErrLost)
	if release == nil {
		w.job.say.released(w.lease)
	}
	switch {
	case w.ended != nil:
		return &exitError{code: codeLost} // it has been said
	case lost:
		return &exitError{code: codeLost, err: release}
	case w.overdue:
		return &exitError{code: codeOverdue, err: release}
	case r.DeadlineHit:
		return &exitError{code: codeLost, err: fmt.Errorf("lock %q: %w; the command was ended", w.job.name, errLate)}
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
