//go:build !linux && !darwin

package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Prepared is a guard without a command. This system has no guards.
type Prepared struct{}

// Prepare returns nil.
func Prepare() *Prepared { return nil }

// Close has no effect.
func (*Prepared) Close() {}

// Process is a running command. This system cannot run commands.
type Process struct{}

// Start returns an error that matches [errors.ErrUnsupported].
func Start(Command) (*Process, error) {
	return nil, fmt.Errorf("proc: running commands on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Pid returns 0.
func (*Process) Pid() int { return 0 }

// Signal returns an error.
func (*Process) Signal(os.Signal) error { return errors.ErrUnsupported }

// SetDeadline has no effect.
func (*Process) SetDeadline(time.Time) {}

// Stop has no effect.
func (*Process) Stop(time.Duration) {}

// Done returns nil.
func (*Process) Done() <-chan struct{} { return nil }

// Wait returns an error that matches [errors.ErrUnsupported].
func (*Process) Wait() (Result, error) { return Result{}, errors.ErrUnsupported }
