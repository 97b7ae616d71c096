package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// noContext is for calls that end by themselves.
var noContext = context.Background()

// job is one `leasehold run`: a lock, and a command that may run while it is
// held.
type job struct {
	want
	flags *runFlags
	argv  []string
	grace time.Duration
}

func (j *job) run(parent context.Context) error {
	client, err := open(j.store)
	if err != nil {
		return err
	}
	ctx, sentry := watchSignals(parent)
	lease, err := j.acquire(ctx, client)
	sentry.settle()
	if err != nil {
		sentry.relieve()
		client.Close()
		return j.refused(ctx, err)
	}
	err = j.work(ctx, lease, sentry)
	dismiss(client, err)
	return err
}

// dismiss closes the client of a run that ended with err. Where the lease was lost
// the store is probably silent, and has been waited for.
func dismiss(client *leasehold.Client, err error) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	var patience <-chan time.Time
	if exit := (*exitError)(nil); errors.As(err, &exit) && exit.lost {
		patience = time.After(lastWord)
	}
	select {
	case <-closed:
	case <-patience:
	}
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
func (j *job) work(ctx context.Context, lease *grip, sentry *sentry) error {
	if cause := context.Cause(ctx); cause != nil { // a signal, in the last moment
		sentry.relieve()
		return j.refused(ctx, errors.Join(cause, lease.release(nil)))
	}
	w := newWatch(j, lease)
	p, err := proc.Start(proc.Command{
		Args: j.argv, Env: environment(&j.want, lease),
		Grace: j.grace, Deadline: w.deadline, Signals: sentry.signals,
	})
	if err != nil {
		sentry.relieve()
		return notStarted(err, lease)
	}
	j.say.started(lease.main, p.Pid())
	w.follow(p)
	result, err := p.Wait()
	hearQuit() // as long as the release takes
	j.say.ended(lease.main, result.Code)
	ended := w.ended
	if ended == nil && result.DeadlineHit {
		ended = errLate // the guard was the first to notice
	}
	return w.verdict(result, err, lease.release(ended))
}

// notStarted gives the lock back, whose command could not be executed.
func notStarted(err error, lease *grip) error {
	code := codeInternal
	var failed *proc.StartError
	if errors.As(err, &failed) {
		code = failed.Code()
	}
	if errors.Is(err, errors.ErrUnsupported) {
		code = codeUsage
	}
	return &exitError{code: code, err: errors.Join(err, lease.release(nil))}
}
