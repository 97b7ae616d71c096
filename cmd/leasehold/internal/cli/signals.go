package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// harmless are the signals that do not end a process which does nothing about
// them. Of those that a command gets, the rest ends a wait.
var harmless = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGURG}

// deadly are the signals that end a wait.
func deadly() []os.Signal {
	return slices.DeleteFunc(proc.Forwarded(), func(sig os.Signal) bool { return slices.Contains(harmless, sig) })
}

// unheard gets a SIGQUIT for which no wait and no command listens. Go would answer
// it with a dump of all goroutines, which is not what Ctrl-\ asks a command for.
var unheard = make(chan os.Signal, 1)

func hearQuit() { signal.Notify(unheard, syscall.SIGQUIT) }

// signalError ends a wait. It matches [context.Canceled], so that errors name
// the signal and not both.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string {
	return fmt.Sprintf("interrupted by %s", cmp.Or(unix.SignalName(e.signal), e.signal.String()))
}

func (e *signalError) Is(target error) bool { return target == context.Canceled }

// sentry turns the first deadly signal into the end of a context, for as long
// as there is no command that could get it.
type sentry struct {
	signals chan os.Signal
	leave   chan struct{}
	left    sync.WaitGroup
}

// watchSignals returns a context that ends with a *signalError. A second signal
// then kills, as if nobody listened.
func watchSignals(parent context.Context) (context.Context, *sentry) {
	ctx, cancel := context.WithCancelCause(parent)
	s := &sentry{signals: make(chan os.Signal, 64), leave: make(chan struct{})}
	for _, sig := range deadly() {
		if !signal.Ignored(sig) { // what nohup ignores stays ignored
			signal.Notify(s.signals, sig)
		}
	}
	signal.Stop(unheard)
	s.left.Go(func() {
		select {
		case sig := <-s.signals:
			s.relieve()
			cancel(&signalError{sig.(syscall.Signal)})
		case <-s.leave:
		}
	})
	return ctx, s
}

// settle leaves the context as it is from now on: a lease hangs on it, and must
// not end before its command. Signals are kept for whoever takes them over.
func (s *sentry) settle() {
	close(s.leave)
	s.left.Wait()
}

// relieve ends the watch, unless the command has taken it over.
func (s *sentry) relieve() {
	hearQuit() // first, so that there always is somebody
	signal.Stop(s.signals)
}
