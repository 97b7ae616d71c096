package proc

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the wrapper's controlling terminal. A nil terminal does nothing.
type terminal struct {
	fd         int
	group      int         // the wrapper's own process group
	child      int         // the child's
	given      bool        // the child's group was put in the foreground, and not yet removed
	wanted     bool        // and is to be there whenever the wrapper is
	savedModes *term.State // as they were before the child started
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, group: unix.Getpgrp()}
	t.savedModes, _ = term.GetState(fd)
	return t
}

// started notes that the guard has started the child, and whether in the foreground.
func (t *terminal) started(child int, foreground bool) {
	if t != nil {
		t.child, t.given, t.wanted = child, foreground, foreground
	}
}

// resumed gives the child back the place that it had before the wrapper was stopped.
func (t *terminal) resumed() {
	if t != nil && t.wanted {
		t.give()
	}
}

// interrupted reports whether a child that had the terminal died of its Ctrl-C.
func (t *terminal) interrupted(sig syscall.Signal) bool {
	return t != nil && t.wanted && (sig == syscall.SIGINT || sig == syscall.SIGQUIT)
}

func (t *terminal) close() {
	if t != nil {
		unix.Close(t.fd)
	}
}

// startsInForeground reports whether a child should begin in the foreground. stdin is the
// descriptor of its standard input.
func (t *terminal) startsInForeground(stdin int) bool {
	if t == nil || !t.isForeground() {
		return false
	}
	group, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP) // fails for another terminal
	return err == nil && group == t.group
}

// isForeground reports whether the wrapper is in the foreground.
func (t *terminal) isForeground() bool {
	return t.holder() == t.group
}

// childIsForeground reports whether the child is in the foreground. A report that it
// stopped because it needed the terminal is then outdated.
func (t *terminal) childIsForeground() bool { return t.given && t.holder() == t.child }

// holder returns the foreground group, or 0.
func (t *terminal) holder() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give puts the child in the foreground if the wrapper is there.
func (t *terminal) give() bool {
	if !t.isForeground() || t.foreground(t.child) != nil {
		return false
	}
	t.given, t.wanted = true, true
	return true
}

// take puts the wrapper back in the foreground if the terminal is still the child's. A
// shell may have taken it since then.
func (t *terminal) take() {
	if t == nil || !t.given {
		return
	}
	t.given = false
	group := t.holder()
	if group == 0 || group == t.group {
		return
	}
	// A shell as child has groups of its own there, which died with it.
	if group == t.child || unix.Kill(-group, 0) == unix.ESRCH {
		_ = t.foreground(t.group) // fails if it is gone
	}
}

// restoreModes restores the terminal modes after a child that was killed.
func (t *terminal) restoreModes() {
	if t != nil && t.wanted && t.savedModes != nil && t.isForeground() {
		_ = term.Restore(t.fd, t.savedModes)
	}
}

func (t *terminal) foreground(group int) error {
	return ignoringTTOU(func() error {
		return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	})
}

// suspend stops the wrapper's group, the wrapper last, and returns when it was continued.
// It returns false at once in a group without a shell above it, because it could not be
// continued.
func (t *terminal) suspend() bool {
	all, err := processes(0)
	if err != nil || !watched(all, t.group) {
		return false
	}
	for _, e := range all {
		if e.pgid == t.group && e.pid != os.Getpid() {
			_ = e.signal(syscall.SIGTSTP)
		}
	}
	return stopSelf() == nil
}

// watched reports whether the group has a member with a parent in the same session
// and another group. That is POSIX's opposite of an orphaned process group.
func watched(all []procEntry, group int) bool {
	session, _ := unix.Getsid(0)
	for _, e := range all {
		if e.pgid != group {
			continue
		}
		pgid, err := unix.Getpgid(e.ppid)
		sid, err2 := unix.Getsid(e.ppid)
		if err == nil && err2 == nil && sid == session && pgid != group {
			return true
		}
	}
	return false
}
