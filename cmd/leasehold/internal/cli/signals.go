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

// harmlessSignals are the forwarded signals whose default action does not end a process.
// The other forwarded signals end a wait.
var harmlessSignals = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGURG}

// fatalSignals returns the signals that end a wait: those that would end the process, and
// the others.
func fatalSignals() (deadly, others []os.Signal) {
	for _, sig := range proc.Forwarded() {
		switch {
		case slices.Contains(harmlessSignals, sig):
		case slices.Contains(proc.Deadly(), sig):
			deadly = append(deadly, sig)
		default:
			others = append(others, sig)
		}
	}
	return deadly, others
}

// unhandledQuit receives a SIGQUIT that neither a wait nor a child handles. Without it Go
// would print the stacks of all goroutines when the user presses Ctrl-\.
var unhandledQuit = make(chan os.Signal, 1)

func catchQuit() { signal.Notify(unhandledQuit, syscall.SIGQUIT) }

// signalError is the cause of a wait that a signal ended. It matches [context.Canceled],
// so that errors name the signal alone.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string {
	return fmt.Sprintf("interrupted by %s", cmp.Or(unix.SignalName(e.signal), e.signal.String()))
}

func (e *signalError) Is(target error) bool { return target == context.Canceled }

// signalWatcher cancels a context at the first fatal signal, until a command takes the
// signals over.
type signalWatcher struct {
	signals   chan os.Signal
	listening sync.WaitGroup // to all of the signals
	detached  chan struct{}
	done      sync.WaitGroup
}

// watchSignals returns a context whose cause becomes a *signalError. A second signal then
// has its default action. Signals that would end the process are listened to at once, the
// others from within some milliseconds on: there are forty of them, and listening to one
// takes as long as asking a directory for a lock.
func watchSignals(parent context.Context) (context.Context, *signalWatcher) {
	ctx, cancel := context.WithCancelCause(parent)
	s := &signalWatcher{signals: make(chan os.Signal, 64), detached: make(chan struct{})}
	deadly, others := fatalSignals()
	s.listen(deadly)
	signal.Stop(unhandledQuit)
	s.listening.Go(func() { s.listen(others) })
	s.done.Go(func() {
		select {
		case sig := <-s.signals:
			s.stop()
			cancel(&signalError{sig.(syscall.Signal)})
		case <-s.detached:
		}
	})
	return ctx, s
}

func (s *signalWatcher) listen(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) { // what nohup ignores stays ignored
			signal.Notify(s.signals, sig)
		}
	}
}

// detach stops cancelling the context, because the leases derive from it and must not end
// before their command. Later signals stay in the channel.
func (s *signalWatcher) detach() {
	close(s.detached)
	s.done.Wait()
	s.listening.Wait()
}

// stop stops receiving signals. It is not called if the command has taken them over.
func (s *signalWatcher) stop() {
	s.listening.Wait()
	catchQuit() // first, so that no signal is missed
	signal.Stop(s.signals)
}
