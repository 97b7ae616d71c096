package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// noContext is the context of calls that have a bound of their own.
var noContext = context.Background()

// runCommand is one `leasehold run`: locks, and a command that runs while they are held.
type runCommand struct {
	lockSpec
	runFlags *runFlags
	grace    time.Duration
	guard    *proc.Prepared // of the first command, or nil
}

func (c *runCommand) run(parent context.Context) error {
	opts := c.runFlags.auditLog.options(func(err error) { c.report.unaudited(c.names[0], err) })
	opts = append(opts, leasehold.WithObserver(leasehold.Observer{Outage: c.report.outage}))
	client, err := open(c.store, opts...)
	if err != nil {
		if c.runFlags.unprotected(err) {
			ctx, watcher := watchSignals(parent)
			if watcher.detach(); context.Cause(ctx) != nil { // a signal arrived just before detach
				return c.refused(ctx, context.Cause(ctx))
			}
			return c.executeUnprotected(watcher, err)
		}
		if exit := (*exitError)(nil); errors.As(err, &exit) {
			exit.unopened = true
		}
		return err
	}
	ctx, watcher := watchSignals(parent)
	lease, err := c.acquire(ctx, client)
	watcher.detach()
	switch {
	case err != nil && context.Cause(ctx) == nil && c.runFlags.unprotected(err):
		err = c.executeUnprotected(watcher, err)
		client.Close() // it has undone a possible acquisition in the background
		return err
	case err != nil:
		watcher.stop()
		client.Close()
		return c.refused(ctx, err)
	}
	err = c.execute(ctx, lease, watcher)
	closeClient(client, err)
	if !lost(err) {
		return err // the process ends; stopping the watcher would take a millisecond
	}
	if sig := watcher.end(); sig != 0 { // elect would continue otherwise
		return interrupted(sig, err)
	}
	return err
}

// lost reports whether a run ended with the loss of a lock.
func lost(err error) bool {
	exit := (*exitError)(nil)
	return errors.As(err, &exit) && exit.lost
}

// closeClient closes the client of a run that ended with err. After a loss it waits for
// at most finalReleaseTimeout: the store is probably silent.
func closeClient(client *leasehold.Client, err error) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	var timeout <-chan time.Time
	if lost(err) {
		timeout = time.After(finalReleaseTimeout)
	}
	select {
	case <-closed:
	case <-timeout:
	}
}

// interrupted returns the error of a wait that a signal ended. Ctrl-C at a terminal is also
// meant for the surrounding shell script, which continues unless this process dies of the
// signal.
func interrupted(sig syscall.Signal, err error) error {
	exit := &exitError{code: 128 + int(sig), err: err}
	if (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && term.IsTerminal(int(os.Stdin.Fd())) {
		exit.die = sig
	}
	return exit
}

// execute runs the command while the leases last, and releases them when all processes of
// the command are gone.
func (c *runCommand) execute(ctx context.Context, lease *leaseSet, watcher *signalWatcher) error {
	if cause := context.Cause(ctx); cause != nil { // a signal arrived just before detach
		watcher.stop()
		return c.refused(ctx, errors.Join(cause, lease.release(nil)))
	}
	m := newMonitor(c, lease)
	p, err := c.start(watcher, environ(&c.lockSpec, lease), m.deadline)
	if err != nil {
		watcher.stop()
		return notStarted(err, lease)
	}
	c.report.started(lease.main, p.Pid())
	m.follow(p)
	result, err := p.Wait()
	watcher.spare()
	c.report.ended(lease.main, result.Code)
	ended := m.ended
	if ended == nil && result.DeadlineHit {
		ended = errLate // the guard acted before the monitor
	}
	return m.verdict(result, err, lease.release(ended))
}

// start starts the command.
func (c *runCommand) start(watcher *signalWatcher, env []string, deadline time.Time) (*proc.Process, error) {
	return proc.Start(proc.Command{
		Args: c.argv, Env: env, Grace: c.grace, Deadline: deadline, Signals: watcher.signals, Prepared: c.guard,
		Survivor: func(s proc.Survivor) { c.report.survives(c.names[0], s) },
		Leftover: func(pid int) { c.report.leftover(c.names[0], pid, c.grace) },
	})
}

// executeUnprotected runs the command without the locks, since the store failed with
// cause.
func (c *runCommand) executeUnprotected(watcher *signalWatcher, cause error) error {
	c.report.unprotected(c.names[0], cause)
	p, err := c.start(watcher, append(passedOn(c.store, c.flags.passStore), envUnprotected+"=1"), time.Time{})
	if err != nil {
		watcher.stop()
		return notStarted(err, new(leaseSet))
	}
	if d := time.Duration(c.runFlags.atMost); d > 0 {
		overdue := time.AfterFunc(d, func() { p.Stop(c.grace) })
		defer overdue.Stop()
	}
	result, err := p.Wait()
	watcher.spare()
	switch {
	case result.Stopped:
		return &exitError{code: codeOverdue, err: err}
	case err == nil && result.Code == 0:
		return nil
	case err == nil && result.Interrupted:
		return &exitError{code: result.Code, die: result.Signal}
	}
	return &exitError{code: result.Code, err: err}
}

// notStarted releases the locks of a command that could not be started.
func notStarted(err error, lease *leaseSet) error {
	if errors.Is(err, proc.ErrTooLate) { // this process or the guard was stopped until the lease ended
		lost := fmt.Errorf("lock %q: %w before the command could begin", lease.main.Key(), leasehold.ErrLost)
		_ = lease.release(lost) // if this fails, the lease expires
		return &exitError{code: codeLost, lost: true, err: lost}
	}
	code := codeInternal
	var failed *proc.StartError
	if errors.As(err, &failed) {
		code = failed.Code()
	}
	return &exitError{code: code, err: errors.Join(err, lease.release(nil))}
}
