package proc

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptsOrphans is false: on macOS orphans become children of launchd.
const adoptsOrphans = false

// deadlyHere is a deadly signal that only this system has.
const deadlyHere = syscall.SIGEMT

// forwardedHere are the signals that go to the child and are not everywhere.
func forwardedHere() []os.Signal { return []os.Signal{syscall.SIGINFO, syscall.SIGEMT} }

// anchored reports whether a process group certainly is the child's: never, because after the
// child was reaped this is unknown, since its orphans are not children of the caller.
func anchored(int) bool { return false }

// childless is false: there is no way to ask.
func childless() bool { return false }

func adoptOrphans() error { return nil }

func self() (string, error) { return os.Executable() }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func setName(string) {}

func socketpair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	return fds, err
}

// processes reads the table of processes, at once.
func processes(int64) ([]procEntry, error) {
	table, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, os.NewSyscallError("sysctl", err)
	}
	all := make([]procEntry, 0, len(table))
	for i := range table {
		p := &table[i]
		all = append(all, procEntry{
			pid:   int(p.Proc.P_pid),
			ppid:  int(p.Eproc.Ppid),
			pgid:  int(p.Eproc.Pgid),
			start: p.Proc.P_starttime.Nano(),
			dead:  p.Proc.P_stat == 5, // SZOMB
		})
	}
	return all, nil
}

func (e procEntry) signal(sig syscall.Signal) error { return unix.Kill(e.pid, sig) }

// userOf returns the user of a process, or -1.
func userOf(pid int) int {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return -1
	}
	return int(p.Eproc.Ucred.Uid)
}

func stopSelf() error { return unix.Kill(unix.Getpid(), unix.SIGSTOP) }

// ignoringTTOU runs f with SIGTTOU ignored; there is no portable way to block it,
// nor one in Go to undo the ignoring.
func ignoringTTOU(f func() error) error {
	signal.Ignore(unix.SIGTTOU)
	return f()
}
