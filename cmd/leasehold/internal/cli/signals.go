package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
)

// harmlessSignals are the forwarded signals whose default action does not end a process.
// The other forwarded signals end a wait.
var harmlessSignals = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGURG}

// fatalSignals returns the signals that end a wait.
func fatalSignals() []os.Signal {
	return slices.DeleteFunc(proc.Forwarded(), func(sig os.Signal) bool { return slices.Contains(harmlessSignals, sig) })
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

// signalName is a flag with the name of a signal for a command; 0 if it is not set.
type signalName syscall.Signal

func (s *signalName) String() string {
	return strings.TrimPrefix(unix.SignalName(syscall.Signal(*s)), "SIG")
}

func (s *signalName) Type() string { return "signal" }

func (s *signalName) Set(text string) error {
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG"))
	if !slices.Contains(proc.Forwarded(), os.Signal(sig)) {
		return fmt.Errorf("no signal for a command: give a name such as USR1 or TERM")
	}
	*s = signalName(sig)
	return nil
}

// signalWatcher cancels a context at the first fatal signal, until a command takes the
// signals over.
type signalWatcher struct {
	signals chan os.Signal
	over    context.CancelFunc // ends the last catch
	done    sync.WaitGroup
	spared  syscall.Signal // the signal that spare has dropped; read after done
}

// watchSignals returns a context whose cause becomes a *signalError. A second signal then
// has its default action.
func watchSignals(parent context.Context) (context.Context, *signalWatcher) {
	ctx, cancel := context.WithCancelCause(parent)
	s := &signalWatcher{signals: make(chan os.Signal, 64)}
	for _, sig := range fatalSignals() {
		if !signal.Ignored(sig) { // a signal that nohup ignores stays ignored
			signal.Notify(s.signals, sig)
		}
	}
	signal.Stop(unhandledQuit)
	s.catch(func(sig syscall.Signal) { cancel(&signalError{sig}) })
	return ctx, s
}

// catch receives one fatal signal in the background, stops receiving signals, and calls f.
func (s *signalWatcher) catch(f func(syscall.Signal)) {
	over, end := context.WithCancel(noContext)
	s.over = end
	s.done.Go(func() {
		for {
			select {
			case sig := <-s.signals:
				if slices.Contains(harmlessSignals, sig) {
					continue
				}
				s.stop()
				f(sig.(syscall.Signal))
				return
			case <-over.Done():
				return
			}
		}
	})
}

// detach stops cancelling the context, because the leases derive from it and must not end
// before their command. Later signals stay in the channel.
func (s *signalWatcher) detach() {
	s.over()
	s.done.Wait()
}

// spare drops one signal after the end of the command, which received the signals before:
// the locks are being released, and without the release they would stay until their leases
// expire. A second signal has its default action.
func (s *signalWatcher) spare() {
	s.catch(func(sig syscall.Signal) { s.spared = sig })
}

// end stops receiving signals after spare. It returns the signal that was dropped, or 0, for
// a caller that continues.
func (s *signalWatcher) end() syscall.Signal {
	s.stop() // later signals have their default action
	s.detach()
	for s.spared == 0 && len(s.signals) > 0 {
		if sig := <-s.signals; !slices.Contains(harmlessSignals, sig) {
			s.spared = sig.(syscall.Signal)
		}
	}
	return s.spared
}

// stop stops receiving signals. It is not called while the command has taken them over.
func (s *signalWatcher) stop() {
	catchQuit() // first, so that no signal is missed
	signal.Stop(s.signals)
}
