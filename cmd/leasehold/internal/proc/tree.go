package proc

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// procEntry is a process in the system's process table.
type procEntry struct {
	pid, ppid, pgid int
	start           int64 // distinguishes it from a later process with the same pid
	dead            bool  // and not reaped
}

// under returns the entries for which root holds, and all their descendants.
func under(all []procEntry, root func(procEntry) bool) []procEntry {
	children := make(map[int][]procEntry)
	var found []procEntry
	for _, e := range all {
		children[e.ppid] = append(children[e.ppid], e)
		if root(e) {
			found = append(found, e)
		}
	}
	seen := make(map[int]bool)
	for _, e := range found {
		seen[e.pid] = true
	}
	for i := 0; i < len(found); i++ {
		for _, c := range children[found[i].pid] {
			if !seen[c.pid] {
				seen[c.pid] = true
				found = append(found, c)
			}
		}
	}
	return found
}

// killBelow kills, once, all descendants of a process, and returns how many were alive.
func killBelow(pid int) (alive int) {
	all, _ := processes(0) // after an error the next look may have more luck
	for _, e := range under(all, func(e procEntry) bool { return e.ppid == pid }) {
		_ = e.signal(syscall.SIGKILL) // the guard reports it
		if !e.dead {
			alive++
		}
	}
	return alive
}

// children distinguishes processes that the calling process has started from orphans of a
// guard that died.
type children struct {
	once   sync.Once
	before map[int]int64 // children the process had before its first Start, with their start

	mu     sync.Mutex // held while a guard is forked, so that a sweep never sees it unlisted
	guards map[int]bool
}

var ownChildren = children{guards: make(map[int]bool)}

// adopt makes the process a subreaper, once.
func (h *children) adopt() {
	h.once.Do(func() {
		_ = adoptOrphans() // the guard asks again, and insists
		h.before = make(map[int]int64)
		if childless() {
			return // most often, and the table of processes may be long
		}
		all, _ := processes(0)
		for _, e := range all {
			if e.ppid == os.Getpid() {
				h.before[e.pid] = e.start
			}
		}
	})
}

// fork runs start, which forks a guard, and records the guard.
func (h *children) fork(start func() (int, error)) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pid, err := start()
	if err == nil {
		h.guards[pid] = true
	}
	return pid, err
}

func (h *children) forget(guard int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.guards, guard)
}

// sweep is the outcome of one killOrphans.
type sweep struct {
	status *syscall.WaitStatus // of the child, if it was reaped
	left   int
	denied int // a process that may not be signalled, or 0
}

// killOrphans kills the processes that a dead guard left, once, and reaps its own children.
func (h *children) killOrphans(child int) (s sweep, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if child != 0 && anchored(child) {
		_ = syscall.Kill(-child, syscall.SIGKILL) // also reaches processes that fork and exit
	}
	all, err := processes(0)
	if err != nil {
		return s, err
	}
	orphans := under(all, func(e procEntry) bool { return h.orphan(e, child) })
	for _, e := range orphans {
		if err := e.signal(syscall.SIGKILL); errors.Is(err, unix.EPERM) && !e.dead {
			s.denied = e.pid
		}
		if e.ppid != os.Getpid() {
			continue
		}
		// By its own pid: a wait for any child would rob os/exec of its own.
		var ws syscall.WaitStatus
		if pid, _ := syscall.Wait4(e.pid, &ws, syscall.WNOHANG, nil); pid == child {
			s.status = &ws
		}
	}
	s.left = len(orphans)
	return s, nil
}

func (h *children) orphan(e procEntry, child int) bool {
	if !adoptsOrphans {
		return child != 0 && (e.pid == child || e.pgid == child)
	}
	start, known := h.before[e.pid]
	mine := h.guards[e.pid] || known && start == e.start
	return e.ppid == os.Getpid() && !mine
}
