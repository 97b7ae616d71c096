package proc

import (
	"os/signal"
	"syscall"
	"time"
)

// supervise runs as long as the guard: it forwards signals, follows the child's stops,
// and sets the result.
func (p *Process) supervise() {
	reports := received[report](p.link.in)
	var last report
	for reports != nil {
		select {
		case sig := <-p.signals:
			p.forward(sig.(syscall.Signal))
		case r, ok := <-reports:
			switch {
			case !ok:
				reports = nil
			case r.Kind == reportStopped:
				p.follow(syscall.Signal(r.Signal))
			case r.Kind == reportDeadline:
				p.confirmed(r.At)
			case r.Kind == reportLeftover:
				if p.cmd.Leftover != nil {
					p.cmd.Leftover(int(r.Pid))
				}
			case r.Kind == reportSurvives:
				p.survives(int(r.Pid), syscall.Errno(r.Errno) == syscall.EPERM)
			default:
				last = r
			}
		}
	}
	acted := p.relieve()
	p.settle(last, acted)
	p.release()
	close(p.done)
}

func (p *Process) forward(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT:
		p.typed = false
	case syscall.SIGCONT:
		p.tty.resumed()
	}
	p.Signal(sig)
}

// follow stops the wrapper after the child was stopped.
func (p *Process) follow(sig syscall.Signal) {
	if p.tty == nil {
		return // the process that stopped it will continue it
	}
	wants := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case wants && (p.tty.childIsForeground() || p.tty.give()):
	case sig == syscall.SIGSTOP && !p.tty.given:
		return
	default:
		p.tty.take()
		if p.tty.suspend() {
			return // the SIGCONT that ended it is forwarded like any other
		}
		p.tty.resumed()
		if wants && !p.tty.childIsForeground() {
			p.Stop(p.cmd.Grace) // it would wait forever for the terminal
		}
	}
	p.Signal(syscall.SIGCONT)
}

// relieve ends the wrapper's work in place of the guard, because the guard's pid is valid
// only until it is reaped. It reports whether the wrapper did anything.
func (p *Process) relieve() bool {
	p.mu.Lock()
	p.over = true
	acted := p.acted
	p.mu.Unlock()
	close(p.reportsDone)
	p.acting.Wait()
	return acted
}

// settle sets the result, and makes sure that the command has ended.
func (p *Process) settle(last report, acted bool) {
	reap(p.guard)
	if last.Kind != reportEnded {
		last = p.finalReport(p.killOrphans())
		p.err = ErrGuardLost
	}
	p.tty.take()
	if acted { // before the guard received it
		o := p.finalReport(last.Status)
		last.Stopped, last.Late = last.Stopped || o.Stopped, last.Late || o.Late
	}
	p.result = Result{Stopped: last.Stopped, DeadlineHit: last.Late}
	if !last.Status.Signaled() {
		p.result.Code = last.Status.ExitStatus()
		return
	}
	sig := last.Status.Signal()
	p.result.Signal, p.result.Code = sig, 128+int(sig)
	p.result.Interrupted = p.typed && p.tty.interrupted(sig)
	p.tty.restoreModes()
}

// finalReport returns the report that a dead guard can no longer send.
func (p *Process) finalReport(status syscall.WaitStatus) report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return report{Status: status, Stopped: p.stopAt != 0, Late: due(p.deadline, clock())}
}

// killOrphans kills the processes that a dead guard left until all are gone, and
// returns how the child ended.
func (p *Process) killOrphans() syscall.WaitStatus {
	status := syscall.WaitStatus(syscall.SIGKILL)
	look := firstLook
	var longest time.Duration
	var again notices
	// One empty look may have missed a process that lost its parent during the look.
	for empty := 0; empty < 2; look = min(2*look, longest) {
		found, err := ownChildren.killOrphans(p.pid)
		if found.status != nil {
			status = *found.status
		}
		if empty++; found.left > 0 || err != nil {
			empty = 0
		}
		if longest = lastLook; found.denied != 0 {
			longest = rareLook
			if again.due(clock()) {
				p.survives(found.denied, true)
			}
		}
		time.Sleep(look)
	}
	return status
}

// release frees everything but the result.
func (p *Process) release() {
	if p.listens {
		signal.Stop(p.signals)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.link != nil {
		p.link.file.Close()
	}
	p.tty.close()
}
