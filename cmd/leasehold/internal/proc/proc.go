package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrGuardLost means that the guard died, or hung and was killed, before it had
// reported how the command ended. The command and all its descendants were killed.
var ErrGuardLost = errors.New("proc: the guard process was lost")

// ErrTooLate means that the deadline of a command had passed before the command could
// begin. It was not begun.
var ErrTooLate = errors.New("proc: the deadline had passed before the command could begin")

// Command is a program to run, with its settings.
type Command struct {
	// Args is the program and its arguments. A program without a slash is looked
	// up in the PATH of Env. As with execvp, a script without "#!" is run by sh.
	Args []string
	// Env is the environment, nil for the caller's.
	Env []string
	// Stdin and Stdout are inherited as they are; nil stands for the caller's own. Standard error
	// and further descriptors that the caller itself inherited pass too.
	Stdin, Stdout *os.File
	// Grace is the time between TERM and KILL at the deadline, and for processes that the
	// command leaves behind. Zero means KILL at once.
	Grace time.Duration
	// Deadline is the first deadline, see [Process.SetDeadline]. Zero: no deadline.
	Deadline time.Time
	// Signals, if not nil, is a channel on which the caller has been listening with
	// [os/signal.Notify] so far. The command takes it over until its end: signals that wait
	// in it are forwarded, so that no signal is lost, or forwarded twice.
	// Then the caller goes on to listen, or stops.
	Signals chan os.Signal
	// Prepared, if not nil, is a guard that was started before, see [Prepare]. Stdin and
	// Stdout are nil then. Start uses it if it lives, and starts another one
	// if not.
	Prepared *Prepared
	// Survivor, if not nil, is called for a process that TERM or KILL does not end, and
	// again at growing intervals while it lives. It must not block.
	Survivor func(Survivor)
	// Leftover, if not nil, is called with a process that the command has left behind
	// and that is being ended. It must not block.
	Leftover func(pid int)
	// Background keeps the caller's signals and terminal from the command. It is
	// meant for servers.
	Background bool
}

// Survivor is a process of a command that could not be ended. The command has not ended
// while it lives.
type Survivor struct {
	Pid int
	// UID is the id of the user that the process belongs to, or -1 if unknown.
	UID int
	// Denied reports whether the process belongs to a user that the caller may not
	// signal. If not, it has received KILL, and the kernel does not end it.
	Denied bool
}

// Result is the outcome of a command.
type Result struct {
	// Code is the exit code as a shell would show it: 128+n after signal n.
	Code int
	// Signal is the signal that killed the command, or 0.
	Signal syscall.Signal
	// Stopped: Stop was called before the command had ended.
	Stopped bool
	// DeadlineHit: the deadline's TERM or KILL was sent.
	DeadlineHit bool
	// Interrupted: the command died of a Ctrl-C or Ctrl-\ that the terminal gave
	// to it alone. A caller that cares about shell scripts around it should, after
	// its clean-up, send Signal to its own group and die of it, too.
	Interrupted bool
}

// StartError is the reason why a command could not be started.
type StartError struct {
	Name string
	Err  error

	missing bool
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v", e.Name, e.Err) }

func (e *StartError) Unwrap() error { return e.Err }

// Code returns the exit code that a shell would use: 127 if the command was not found,
// 126 if it was found and could not be executed.
func (e *StartError) Code() int {
	if e.missing {
		return 127
	}
	return 126
}
