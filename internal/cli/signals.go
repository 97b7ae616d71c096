package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// deadly are the signals that end a wait: those that end a process which does
// nothing about them. Of the rest, none concerns a process that waits.
var deadly = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// signalError ends a wait. It matches [context.Canceled], so that errors name
// the signal and not both.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string {
	return fmt.Sprintf("interrupted by %s", unix.SignalName(e.signal))
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
	for _, sig := range deadly {
		if !signal.Ignored(sig) { // what nohup ignores stays ignored
			signal.Notify(s.signals, sig)
		}
	}
	s.left.Go(func() {
		select {
		case sig := <-s.signals:
			signal.Stop(s.signals)
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
func (s *sentry) relieve() { signal.Stop(s.signals) }
