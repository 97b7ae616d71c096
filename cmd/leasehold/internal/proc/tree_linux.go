package proc

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptsOrphans reports that an orphan becomes the child of its nearest ancestor that is a
// subreaper.
const adoptsOrphans = true

// deadlyHere is a deadly signal that only this system has.
const deadlyHere = syscall.SIGSTKFLT

// forwardedHere are the signals that go to the child and are not everywhere. The
// real-time signals begin with the first that Go's runtime does not keep.
func forwardedHere() []os.Signal {
	all := []os.Signal{syscall.SIGPWR, syscall.SIGSTKFLT}
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	return all
}

// anchored reports whether a process group has a member that is a child of the caller and
// was not reaped. Its id then stands for no other group.
func anchored(group int) bool { return findChild(unix.P_PGID, group, 0) == nil }

// childless reports whether the caller certainly has no children.
func childless() bool { return errors.Is(findChild(unix.P_ALL, 0, unix.WALL), unix.ECHILD) }

// findChild returns ECHILD if the caller has no such child. It reaps none.
func findChild(idType, id, options int) error {
	for {
		err := unix.Waitid(idType, id, nil, options|unix.WEXITED|unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

func adoptOrphans() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// selfPath is the path of the running binary, even if its file has been replaced. A test sets it.
var selfPath = "/proc/self/exe"

var errNoProc = errors.New("/proc is not mounted; mount it, as with: mount -t proc proc /proc")

// self returns the path of the running binary, or errNoProc.
func self() (string, error) {
	if _, err := os.Lstat(selfPath); errors.Is(err, os.ErrNotExist) {
		return "", errNoProc
	}
	return selfPath, nil
}

// childAttr ties the child's life to the thread that forks it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// setName renames the process, so that "killall leasehold" does not reach the guard.
func setName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // a name is no reason to fail
}

func socketpair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

// processes reads the table of processes. It is not a snapshot: a process that is
// born or loses its parent during the read may be missing, so callers look again. With
// thousands of dead processes in it the table takes seconds on a busy machine. At the time
// until (0 for never), the entries read so far are returned with errOutOfTime.
func processes(until int64) ([]procEntry, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []procEntry
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if due(until, clock()) {
			return all, errOutOfTime
		}
		if e, err := readEntry(pid); err == nil {
			all = append(all, e)
		}
	}
	return all, nil
}

var errOutOfTime = errors.New("proc: no time to read the whole table of processes")

var errStat = errors.New("proc: unexpected format of /proc/PID/stat")

// readEntry reads /proc/PID/stat: "pid (name) state ppid pgrp … starttime …". The
// name may hold anything, so the fields are counted from its last parenthesis.
func readEntry(pid int) (procEntry, error) {
	b, err := readSmall("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procEntry{}, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return procEntry{}, errStat
	}
	var n [3]int64
	for i, field := range [3]int{1, 2, 19} {
		if n[i], err = strconv.ParseInt(string(f[field]), 10, 64); err != nil {
			return procEntry{}, errStat
		}
	}
	return procEntry{pid: pid, ppid: int(n[0]), pgid: int(n[1]), start: n[2], dead: f[0][0] == 'Z'}, nil
}

// readSmall reads a file of at most a kilobyte with three system calls: a busy
// machine has thousands of processes, and a deadline may be waiting.
func readSmall(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// signal sends sig to this very process, never to a later one with its pid. Where
// the kernel or a sandbox has no pidfd, the pid must do. The error is EPERM if the
// process belongs to another user.
func (e procEntry) signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(e.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return err
	}
	if err != nil {
		return unix.Kill(e.pid, sig)
	}
	defer unix.Close(fd)
	now, err := readEntry(e.pid)
	if err != nil || now.start != e.start {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// userOf returns the user of a process, or -1.
func userOf(pid int) int {
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid), &st) != nil {
		return -1
	}
	return int(st.Uid)
}

// stopSelf stops the calling process and returns when it was continued. To one's
// own thread: a signal to the process might be taken by another thread, later.
func stopSelf() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// ignoringTTOU runs f with SIGTTOU blocked: setting the foreground group from the
// background would stop the process. It is not ignored, because children
// inherit ignored signals.
func ignoringTTOU(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGTTOU - 1) // the 22nd of at least 32 bits
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil))
}
