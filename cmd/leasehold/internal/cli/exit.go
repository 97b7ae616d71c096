package cli

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// Exit codes beside those of the child. They follow sysexits.h and timeout(1)
// where those have a word for it.
const (
	codeNotThere    = 1   // there is no such lease, or no leader; what was looked at is not sound
	codeUsage       = 64  // the call itself is wrong
	codeInUse       = 65  // the name is in use as something else
	codeUnavailable = 69  // the store does not answer; nothing was started
	codeInternal    = 70  // anything else
	codeOutput      = 74  // what was to be printed could not be
	codeBusy        = 75  // held by others
	codeLost        = 79  // the lease ended before the command
	codeUnreleased  = 80  // the command succeeded, the release was not confirmed
	codeOverdue     = 124 // --at-most was exceeded
)

// exitError is how a command ends that does not end with 0.
type exitError struct {
	code int
	err  error // nil: there is nothing to say
	lost bool  // the lease of a command was, so that its code says nothing
	// die is the signal of which the process is to die, 0 for none.
	die syscall.Signal
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// ExitCode is the code with which a process ends whose [Run] returned err.
func ExitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	}
	return codeUsage // cobra's own errors are about the call
}

// DiedOf is the signal of which the process should die after [Run] returned
// err, so that the shell script around it ends too; 0 for none.
func DiedOf(err error) syscall.Signal {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.die
	}
	return 0
}

// Die ends the process group by the signal that a Ctrl-C or Ctrl-\ gave to the
// command alone. A shell script around us goes on unless it gets the signal too,
// and sees that we died of it. It returns where the process has to exit with
// [ExitCode] instead.
func Die(sig syscall.Signal) {
	if sig == syscall.SIGQUIT {
		signal.Ignore(sig) // Go would answer with a dump of all goroutines
		_ = syscall.Kill(0, sig)
		return
	}
	signal.Reset(sig)
	_ = syscall.Kill(0, sig) // without effect, there still is the exit code
	time.Sleep(time.Second)  // another thread may be the one to take it
}

func usage(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// classify gives an error of the library or a store its code.
func classify(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{code: codeOf(err), err: err}
}

// codeOf asks for what is known before what is unknown: an error may be both.
func codeOf(err error) int {
	switch {
	case errors.Is(err, leasehold.ErrHeld):
		return codeBusy
	case errors.Is(err, leasehold.ErrLost):
		return codeLost
	case errors.Is(err, leasehold.ErrNotHeld):
		return codeNotThere
	case errors.Is(err, leasehold.ErrMismatch):
		return codeInUse
	case errors.Is(err, leasehold.ErrInvalid), errors.Is(err, leasehold.ErrUnsupported):
		return codeUsage
	case errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, leasehold.ErrUnknown),
		errors.Is(err, leasehold.ErrNoQuorum), errors.Is(err, leasehold.ErrNotReplicated),
		errors.Is(err, driver.ErrClosed):
		return codeUnavailable
	}
	return codeInternal
}
