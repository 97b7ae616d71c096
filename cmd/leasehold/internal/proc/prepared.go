package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Prepared is a guard that has no command yet. To start a guard takes about as long as
// all else that a wrapper does until its command runs; with a prepared one both go on at
// the same time. It serves one goroutine, and one [Start].
type Prepared struct {
	ready chan struct{} // closed when the rest is set
	guard *os.Process
	link  *link
	err   error
}

// Prepare starts a guard for a later [Start], and returns before it has begun. The guard
// has the caller's own standard input, output and error. Close ends it.
func Prepare() *Prepared {
	ownChildren.adopt()
	g := &Prepared{ready: make(chan struct{})}
	go func() {
		defer close(g.ready)
		g.guard, g.link, g.err = startGuard(Command{})
	}()
	return g
}

// Close ends a guard that no Start has used, and waits for its end, which takes some
// milliseconds. It has no effect after a Start, and on nil.
func (g *Prepared) Close() {
	if g == nil {
		return
	}
	<-g.ready
	if g.guard == nil {
		return
	}
	_ = g.guard.Kill()
	reap(g.guard)
	g.link.file.Close()
	g.guard = nil
}

// take returns the guard and its link, or nil if there is no guard or it has died.
func (g *Prepared) take() (*os.Process, *link) {
	if g == nil {
		return nil, nil
	}
	<-g.ready
	if g.guard == nil || g.link.ended() {
		g.Close()
		return nil, nil
	}
	guard := g.guard
	g.guard = nil
	return guard, g.link
}

// startGuard starts a guard with the input and output of cmd.
func startGuard(cmd Command) (*os.Process, *link, error) {
	l, theirs, err := newLink()
	if err != nil {
		return nil, nil, fmt.Errorf("proc: %w", err)
	}
	pid, err := forkGuard(cmd, theirs)
	unix.Close(theirs)
	var guard *os.Process
	if err == nil {
		guard, err = os.FindProcess(pid)
	}
	if err != nil {
		l.file.Close()
		return nil, nil, fmt.Errorf("proc: start the guard: %w", err)
	}
	return guard, l, nil
}

// reap waits for a guard.
func reap(guard *os.Process) {
	_, _ = guard.Wait() // its exit code does not matter, only its reports
	ownChildren.forget(guard.Pid)
}

// ended reports whether the guard's end of the socket has closed.
func (l *link) ended() bool {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return true
	}
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	return err != nil || n <= 0 && !errors.Is(failed, syscall.EAGAIN)
}
