package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/proc"
)

// noContext is for calls that end by themselves.
var noContext = context.Background()

// job is one `leasehold run`: a lock, and a command that may run while it is
// held.
type job struct {
	flags  *runFlags
	name   string
	argv   []string
	store  string
	owner  string
	ttl    time.Duration
	grace  time.Duration
	outer  *held // the lock of the same name under which this runs
	stderr io.Writer
	say    teller
}

// nest finds the surrounding run of the same lock, whose owner re-enters.
func (j *job) nest(around []held) error {
	for _, h := range around {
		if h.Store != j.store || h.Key != j.name {
			continue
		}
		if j.flags.owner != "" && j.flags.owner != h.Owner {
			return usage("--owner %q: this runs under lock %q already, held by %q, and would wait for itself", j.flags.owner, h.Key, h.Owner)
		}
		j.outer, j.owner = &h, h.Owner
		return nil
	}
	if j.owner == "" {
		j.owner = newOwner()
	}
	return nil
}

func (j *job) run(parent context.Context) error {
	client, err := open(j.store)
	if err != nil {
		return err
	}
	defer client.Close()

	ctx, sentry := watchSignals(parent)
	lease, err := j.acquire(ctx, client)
	sentry.settle()
	if err != nil {
		sentry.relieve()
		return j.refused(ctx, err)
	}
	return j.work(ctx, lease, sentry)
}

// acquire waits for the lock, as the flags say, and until the lease has its
// full time: one that was handed over begins with a short one.
func (j *job) acquire(ctx context.Context, client *leasehold.Client) (*leasehold.Lease, error) {
	mutex := client.Mutex(j.name, j.options()...)
	began := time.Now()
	lock := mutex.Lock
	if j.flags.nonblock || j.outer != nil {
		lock = mutex.TryLock
	}
	view := newQueueView(&j.say, client, j.stderr)
	lease, err := lock(leasehold.ObserveWait(ctx, func(e leasehold.WaitEvent) { view.event(ctx, e) }))
	view.end()
	if err != nil {
		return nil, err
	}
	if lease.Remaining() < j.ttl/2 {
		err = lease.Extend(ctx, j.ttl)
	}
	if err == nil {
		err = j.reentered(lease)
	}
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	j.say.acquired(lease, j.owner, time.Since(began))
	return lease, nil
}

// reentered refuses a nested run whose outer lease is not there any more: what
// runs under a lost lease must not begin afresh. The token tells.
func (j *job) reentered(lease *leasehold.Lease) error {
	if j.outer == nil || lease.Token() == j.outer.Token {
		return nil
	}
	return j.outerLost()
}

func (j *job) outerLost() error {
	return &exitError{code: codeLost, err: fmt.Errorf("lock %q: %w: the run around this one held it with token %d, and does not any more", j.name, leasehold.ErrLost, j.outer.Token)}
}

// refused gives an acquisition that failed its exit code.
func (j *job) refused(ctx context.Context, err error) error {
	var sig *signalError
	switch busy := errors.Is(err, leasehold.ErrHeld); {
	case errors.As(context.Cause(ctx), &sig):
		return interrupted(sig.signal, err)
	case busy && j.outer != nil:
		return j.outerLost()
	case busy && j.say.level < normal && !j.say.json:
		return &exitError{code: j.flags.conflict} // -q: the code says it
	case busy:
		return &exitError{code: j.flags.conflict, err: err}
	}
	return err
}

// interrupted is the end of a wait by a signal. Somebody who pressed Ctrl-C
// means the shell script around us too, which goes on unless we die of it.
func interrupted(sig syscall.Signal, err error) error {
	exit := &exitError{code: 128 + int(sig), err: err}
	if (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && term.IsTerminal(int(os.Stdin.Fd())) {
		exit.die = sig
	}
	return exit
}

// work runs the command while the lease lasts, and gives the lease back when
// nothing of the command is left.
func (j *job) work(ctx context.Context, lease *leasehold.Lease, sentry *sentry) error {
	if cause := context.Cause(ctx); cause != nil { // a signal, in the last moment
		sentry.relieve()
		return j.refused(ctx, errors.Join(cause, lease.Release()))
	}
	w := newWatch(j, lease)
	p, err := proc.Start(proc.Command{
		Args: j.argv, Env: environment(j.store, j.owner, lease),
		Grace: j.grace, Deadline: w.deadline, Signals: sentry.signals,
	})
	if err != nil {
		sentry.relieve()
		return j.notStarted(err, lease)
	}
	j.say.started(lease, p.Pid())
	w.follow(p)
	result, err := p.Wait()
	j.say.ended(lease, result.Code)
	return w.verdict(result, err, w.release())
}

// notStarted gives the lock back, whose command could not be executed.
func (j *job) notStarted(err error, lease *leasehold.Lease) error {
	code := codeInternal
	var failed *proc.StartError
	if errors.As(err, &failed) {
		code = failed.Code()
	}
	if errors.Is(err, errors.ErrUnsupported) {
		code = codeUsage
	}
	return &exitError{code: code, err: errors.Join(err, lease.Release())}
}
