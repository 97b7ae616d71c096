package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that go from the wrapper to the child's group: all that
// Go passes to a program and that are not about the wrapper itself. Its runtime
// keeps SIGPROF and the first three real-time signals. It also sends SIGURG to
// itself, so a child may get a SIGURG without a cause; programs that use that signal
// have to check for a cause anyway. SIGPIPE is not forwarded: the kernel sends it to the
// wrapper for each write to a broken connection, for example to a store, and such a SIGPIPE
// looks like one that a process sent.
var forwarded = append([]os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGALRM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
	syscall.SIGABRT, syscall.SIGURG, syscall.SIGIO, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ,
}, forwardedHere()...)

// Forwarded returns the signals that are forwarded to a command, for a caller that
// listens with [Command.Signals] before it starts one.
func Forwarded() []os.Signal { return slices.Clone(forwarded) }

// Times by which the wrapper acts for a guard that does not.
const (
	// backstop is how much later than the guard the wrapper acts on the same times.
	backstop = 250 * time.Millisecond
	// reportTimeout is the time after that in which a guard has to report how the command
	// ended. On a busy machine a process may wait seconds for a processor.
	reportTimeout = 5 * time.Second
)

// Process is a running command. Its methods may be called by several goroutines.
type Process struct {
	cmd     Command
	pid     int
	guard   *os.Process
	link    *link
	tty     *terminal
	signals chan os.Signal
	listens bool // to signals, which are no caller's
	typed   bool // owned by supervise: no interrupt was forwarded

	reportsDone chan struct{} // closed after the guard's last report
	done        chan struct{}
	result      Result // these two from done on
	err         error

	mu       sync.Mutex
	over     bool
	asked    int64 // the last deadline sent, by clock, or 0
	deadline int64 // the earliest by which the guard may be going
	stopAt   int64
	timer    *time.Timer // acts in the place of a guard that let a time pass
	acted    bool        // it did
	acting   sync.WaitGroup

	stuck atomic.Bool // a process cannot be ended: the guard does not hang, but waits for it
}

// Start runs the command. The error is a [*StartError] if the command cannot be executed,
// and [ErrTooLate] if its deadline has passed before it could begin.
// Every started Process must be waited for, or at least until Done.
func Start(cmd Command) (*Process, error) {
	if cmd.Prepared != nil && (cmd.Stdin != nil || cmd.Stdout != nil) {
		return nil, errors.New("proc: a prepared guard has the caller's own input and output")
	}
	s, err := cmd.spec()
	if err != nil {
		return nil, err
	}
	ownChildren.adopt()
	p := &Process{cmd: cmd, signals: cmd.Signals, reportsDone: make(chan struct{}), done: make(chan struct{}), typed: true}
	if p.signals == nil {
		p.signals, p.listens = make(chan os.Signal, 64), true
	}
	if !cmd.Background {
		p.tty = openTerminal()
		s.Foreground = p.tty.startsInForeground(int(descriptor(cmd.Stdin, 0)))
		for _, sig := range forwarded {
			if !signal.Ignored(sig) { // the child ignores a signal that nohup ignores
				signal.Notify(p.signals, sig)
			}
		}
		dropPipe()
	}
	if err := p.start(s); err != nil {
		p.release()
		return nil, err
	}
	go p.supervise()
	return p, nil
}

// dropPipe catches SIGPIPE, so that a message to a closed stderr does not kill the wrapper.
// The signal is not ignored, because the child would inherit that.
var dropPipe = sync.OnceFunc(func() {
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
})

// spec checks the command, and translates it for the guard.
func (cmd *Command) spec() (spec, error) {
	if len(cmd.Args) == 0 {
		return spec{}, errors.New("proc: no command")
	}
	if cmd.Grace < 0 {
		return spec{}, fmt.Errorf("proc: negative grace %v", cmd.Grace)
	}
	env := cmd.Env
	if env == nil {
		env = os.Environ()
	}
	env = lastOfEach(env)
	if hasNUL(cmd.Args) || hasNUL(env) {
		return spec{}, &StartError{Name: strings.ReplaceAll(cmd.Args[0], fieldEnd, "?"), Err: syscall.EINVAL}
	}
	path, err := lookup(cmd.Args[0], env)
	if err != nil {
		missing := errors.Is(err, errNotFound) || errors.Is(err, os.ErrNotExist)
		return spec{}, &StartError{Name: cmd.Args[0], Err: err, missing: missing}
	}
	s := spec{Path: path, Args: cmd.Args, Env: env, Grace: cmd.Grace, Deadline: reading(cmd.Deadline)}
	if addresses(env, os.Getpid()) {
		s.Addressee = os.Getpid()
	}
	return s, nil
}

// hasNUL reports whether one of the texts has a NUL, which no system call could pass on.
func hasNUL(all []string) bool {
	return slices.ContainsFunc(all, func(text string) bool { return strings.Contains(text, fieldEnd) })
}

// start takes the prepared guard if it lives, or starts one, and waits until the guard has
// started the child, or failed to.
func (p *Process) start(s spec) error {
	if p.guard, p.link = p.cmd.Prepared.take(); p.guard == nil {
		var err error
		if p.guard, p.link, err = startGuard(p.cmd); err != nil {
			return err
		}
	}
	first, err := p.link.introduce(s)
	if err == nil && first.Kind == reportStarted {
		p.pid = int(first.Pid)
		p.asked = s.Deadline
		p.confirmed(s.Deadline)
		p.tty.started(p.pid, s.Foreground)
		return nil
	}
	_ = p.guard.Kill()
	reap(p.guard)
	if err != nil {
		p.killOrphans() // it may have forked the child already
		return fmt.Errorf("proc: start the guard: %w", err)
	}
	p.tty.started(0, s.Foreground)
	p.tty.take()
	if first.Late {
		return ErrTooLate
	}
	return &StartError{Name: p.cmd.Args[0], Err: syscall.Errno(first.Errno)}
}

// forkGuard starts the guard in a process group of its own, so that signals to the
// wrapper's group do not reach it.
func forkGuard(cmd Command, socket int) (int, error) {
	path, err := self()
	if err != nil {
		return 0, err
	}
	files := []uintptr{descriptor(cmd.Stdin, 0), descriptor(cmd.Stdout, 1), 2}
	// Descriptors that the wrapper inherited, for example from make or systemd, keep
	// their numbers. The socket takes the first free number.
	for inherited(len(files)) {
		files = append(files, uintptr(len(files)))
	}
	argv := []string{guardName, strconv.Itoa(len(files))}
	files = append(files, uintptr(socket))
	return ownChildren.fork(func() (int, error) {
		return syscall.ForkExec(path, argv, &syscall.ProcAttr{
			Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	})
}

// inherited reports whether a descriptor is open and is passed to children. Descriptors
// that Go opens are not.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// descriptor returns the descriptor of f, or own if f is nil. That is not a call through
// os.File, which would change the blocking mode.
func descriptor(f *os.File, own uintptr) uintptr {
	if f == nil {
		return own
	}
	return f.Fd()
}

// Pid returns the command's process id, which is also the id of its process group.
func (p *Process) Pid() int { return p.pid }

// Signal sends sig to the command's process group. It has no effect after the command's end.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(order{Kind: orderSignal, Signal: int32(sig)})
}

// SetDeadline sets the time by which the command and all its descendants must be gone;
// the zero time removes it. The guard enforces it even if the caller has been stopped or
// hangs: it sends TERM one Grace before, and KILL at the deadline. Push the deadline
// forward while it is more than a Grace ahead: once TERM was sent it is final. Allow for
// the milliseconds that a KILL takes, and for 250 more in case the guard hangs and the
// caller's process has to act in its place.
func (p *Process) SetDeadline(at time.Time) {
	d := reading(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.deadline = d, sooner(p.deadline, d)
	p.send(order{Kind: orderDeadline, At: d})
	p.arm()
}

// Stop sends TERM to the command and all its descendants, and KILL to the processes that are
// left after the grace. It does not wait for that; Wait does. Stopping again can only bring
// the KILL forward. The deadline stays in force.
func (p *Process) Stop(grace time.Duration) {
	at := later(clock(), int64(max(grace, 0)))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopAt = sooner(p.stopAt, at)
	p.send(order{Kind: orderStop, At: p.stopAt})
	p.arm()
}

// Done is closed when the command and all its descendants are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the command and all its descendants are gone. The error, if
// any, is ErrGuardLost.
func (p *Process) Wait() (Result, error) {
	<-p.done
	return p.result, p.err
}

// send sends an order to the guard, and kills a guard that does not accept it. The caller
// holds mu.
func (p *Process) send(o order) {
	if !p.over && p.link.order(o) != nil {
		_ = p.guard.Kill()
	}
}

// confirmed stores the deadline that the guard has confirmed. Earlier deadlines count until
// then, so that a guard that hangs is found at the last deadline that it received, also
// while the caller renews.
func (p *Process) confirmed(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = sooner(at, p.asked)
	p.arm()
}

// actForGuard kills the tree in place of a guard that hangs or is too slow.
func (p *Process) actForGuard() {
	p.mu.Lock()
	if p.over || p.acted {
		p.mu.Unlock()
		return
	}
	p.acted = true
	p.acting.Add(1)
	p.mu.Unlock()
	defer p.acting.Done()
	end, longest := time.Now().Add(reportTimeout), lastLook
	for look := firstLook; !p.ended(look); look = min(2*look, longest) {
		alive := killBelow(p.guard.Pid)
		if time.Now().Before(end) {
			continue
		}
		if alive == 0 || !p.stuck.Load() {
			break
		}
		longest = rareLook
	}
	_ = p.guard.Kill() // without effect once it has gone
}

// survives reports a process that cannot be ended.
func (p *Process) survives(pid int, denied bool) {
	p.stuck.Store(true)
	if p.cmd.Survivor != nil {
		p.cmd.Survivor(Survivor{Pid: pid, UID: userOf(pid), Denied: denied})
	}
}

// ended waits for the guard's end, at most for d.
func (p *Process) ended(d time.Duration) bool {
	select {
	case <-p.reportsDone:
		return true
	case <-time.After(d):
		return false
	}
}

// arm sets the timer for the earliest time. The caller holds mu.
func (p *Process) arm() {
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Hour, p.actForGuard)
	}
	at := sooner(p.deadline, p.stopAt)
	if at == 0 || p.over || p.acted {
		p.timer.Stop()
		return
	}
	p.timer.Reset(max(time.Duration(at-clock()), 0) + backstop)
}

// reading converts a time to a reading of clock. It reads the clock first: if the process
// is stopped in between, the result is early and not late.
func reading(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	now := clock()
	return max(later(now, int64(time.Until(at))), 1)
}
