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

// Exit codes of the command itself. They follow sysexits.h and timeout(1) if these define a
// code for the case.
const (
	codeNotThere    = 1   // there is no such lease, or no leader; or a check has failed
	codeUsage       = 64  // the call itself is wrong
	codeInUse       = 65  // the name is in use as something else
	codeUnavailable = 69  // the store does not answer; no command was started
	codeInternal    = 70  // anything else
	codeOutput      = 74  // the output could not be printed
	codeBusy        = 75  // held by another owner
	codeLost        = 79  // the lease ended before the command
	codeUnreleased  = 80  // the command succeeded, the release was not confirmed
	codeOverdue     = 124 // --at-most was exceeded
)

// exitError is an error with an exit code other than 0.
type exitError struct {
	code int
	err  error // nil if there is nothing to print
	lost bool  // the lease was lost, so that the command's own code does not count
	// unopened: the store could not be opened, and no command has run.
	unopened bool
	// die is the signal by which the process should end, 0 for none.
	die syscall.Signal
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// ExitCode returns the exit code for an error of [Run]: 0 for nil.
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

// Die sends the signal of a Ctrl-C or Ctrl-\ to the whole process group if [Run] returned its
// error err because of that, so that a surrounding shell script ends too. If it returns, the
// process exits with [ExitCode].
func Die(err error) {
	var exit *exitError
	switch {
	case !errors.As(err, &exit) || exit.die == 0:
	case exit.die == syscall.SIGQUIT:
		signal.Ignore(exit.die) // Go would print the stacks of all goroutines
		_ = syscall.Kill(0, exit.die)
	default:
		signal.Reset(exit.die)
		_ = syscall.Kill(0, exit.die) // if it fails, the exit code remains
		time.Sleep(time.Second)       // another thread may receive it
	}
}

func usage(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &exitError{code: codeOfText(err), err: err}
}

// classify gives an error of the library or of a store its exit code.
func classify(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{code: codeOf(err), err: err}
}

// codeOfText returns the exit code for an invalid text of the caller. If the text is in a file
// that cannot be read because of a shortage on the machine, the code is codeInternal.
func codeOfText(err error) int {
	for _, shortage := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO} {
		if errors.Is(err, shortage) {
			return codeInternal
		}
	}
	return codeUsage
}

// codeOf returns the exit code of an error. It asks for definite outcomes first, since an
// error may match several sentinels.
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
	case errors.Is(err, leasehold.ErrInvalid):
		return codeOfText(err)
	case errors.Is(err, leasehold.ErrUnsupported):
		return codeUsage
	case errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, leasehold.ErrUnknown),
		errors.Is(err, leasehold.ErrNoQuorum), errors.Is(err, leasehold.ErrNotReplicated),
		errors.Is(err, driver.ErrClosed):
		return codeUnavailable
	}
	return codeInternal
}
