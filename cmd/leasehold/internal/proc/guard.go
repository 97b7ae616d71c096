package proc

import (
	"bufio"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardName is the argv[0] that makes a process a guard. The environment would not
// do: the child inherits it, and may be the same binary.
const guardName = "lease-guard"

// init does the guard's work and exits in a process that Start has made to be a guard. In
// a process that a guard has made for execChild, it becomes the child. In any other process
// it returns at once. It is not a function for main to call, because the
// packages that this one does not import are initialized before main and, but for a few,
// after this one: the clients of all stores take several times as long as the guard's
// own start. Therefore this package does not import os/exec or path/filepath, which are
// initialized late.
func init() {
	if len(os.Args) == 2 && os.Args[0] == guardName {
		guardMain()
	}
	if len(os.Args) > 3 && os.Args[0] == execName {
		err := execChild(os.Args[1], os.Args[2], os.Args[3:])
		_, _ = os.Stderr.WriteString("leasehold: " + os.Args[2] + ": " + err.Error() + "\n")
		os.Exit(126) //nolint:forbidigo // as a shell does
	}
}

func guardMain() {
	// PDEATHSIG is bound to the thread that forks, so it must never end.
	runtime.LockOSThread()
	fd, err := strconv.Atoi(os.Args[1])
	if err != nil || !runGuard(fd) {
		os.Exit(1) //nolint:forbidigo // this process was made to be a guard
	}
	os.Exit(0) //nolint:forbidigo // its main goes no further
}

// guard is the parent of the child. One goroutine owns it.
type guard struct {
	plan
	spec         spec
	pid          int
	ended        bool // the child was reaped: its pid may belong to another process
	status       syscall.WaitStatus
	stopped      bool
	seen         map[int]int64 // where orphans are lost: members of the tree, with their start
	lookInterval time.Duration // until the next look at the tree while it is being killed
	lookAt       int64
	took         time.Duration // by the last look
	survivor     procEntry     // alive at the last look after KILL
	since        int64         // of survivor
	stuck        bool          // the last look found a process that cannot be ended
	notices      notices
	leftover     bool // was reported
	reports      chan report
}

func runGuard(fd int) bool {
	unix.CloseOnExec(fd)
	setName(guardName)
	dropSignals()
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	bell, err := newAlarm()
	if err != nil || adoptOrphans() != nil {
		return false
	}
	socket := os.NewFile(uintptr(fd), "wrapper")
	in := bufio.NewReader(socket)
	g := &guard{seen: make(map[int]int64), lookInterval: firstLook, reports: make(chan report, 64)}
	if g.spec, err = readSpec(in); err != nil {
		return false
	}
	flushed := g.report(socket)
	if err := g.start(); err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		g.reports <- report{Kind: reportFailed, Errno: uint32(errno), Late: errors.Is(err, ErrTooLate)}
	} else {
		g.reports <- report{Kind: reportStarted, Pid: int32(g.pid)}
		g.watch(received[order](in), died, bell)
		g.reports <- report{Kind: reportEnded, Status: g.status, Stopped: g.stopped, Late: g.late}
	}
	close(g.reports)
	<-flushed
	return true
}

// deadly are the signals that end or stop a program in Go that does not listen for them.
// Its runtime catches the other signals, as package os/signal promises, and ignores them. To
// listen for one takes two switches between threads, some 30 µs, and there are 30
// real-time signals.
var deadly = append([]os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGABRT,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE,
}, deadlyHere)

// dropSignals drops the signals that would end or stop the guard. It catches them instead
// of ignoring them, because the child would inherit that. Signals that are ignored
// already, as by nohup, stay so for the child's sake.
func dropSignals() {
	dropped := make(chan os.Signal, 1)
	for _, s := range deadly {
		if !signal.Ignored(s) {
			signal.Notify(dropped, s)
		}
	}
}

// start forks the child, and then closes its own standard input and output. It looks at the
// clock last: wrapper and guard may have been stopped for long since the deadline was set.
func (g *guard) start() error {
	g.plan = plan{grace: int64(g.spec.Grace), deadline: g.spec.Deadline}
	attr := &syscall.ProcAttr{Env: g.spec.Env, Files: []uintptr{0, 1, 2}, Sys: childAttr()}
	attr.Sys.Foreground = g.spec.Foreground // on descriptor Ctty, 0
	if due(g.deadline, clock()) {
		return ErrTooLate
	}
	path, args := g.spec.Path, g.spec.Args
	if g.spec.Addressee != 0 {
		var err error
		if path, args, err = throughSelf(g.spec); err != nil {
			return err
		}
	}
	pid, err := syscall.ForkExec(path, args, attr)
	if err == syscall.ENOEXEC && script(g.spec.Path) {
		args := append([]string{"/bin/sh", g.spec.Path}, g.spec.Args[1:]...)
		pid, err = syscall.ForkExec(args[0], args, attr)
	}
	if err != nil {
		return err
	}
	g.pid = pid
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup2(null, 0) // or a pipe stays open for a little longer
		_ = unix.Dup2(null, 1)
		unix.Close(null)
	}
	return nil
}

// watch returns when the child and all its descendants are gone.
func (g *guard) watch(orders <-chan order, died <-chan os.Signal, bell *alarm) {
	for {
		gone, more := g.reap()
		if gone {
			return
		}
		now := clock()
		g.act(now)
		bell.set(sooner(g.next(), g.nextLook(now)))
		select {
		case o, ok := <-orders:
			if ok {
				g.handleOrder(o)
				break
			}
			orders = nil // the wrapper is gone
			g.end(clock(), clock())
		case <-more:
		case <-died:
		case <-bell.C:
		}
	}
}

func (g *guard) handleOrder(o order) {
	switch o.Kind {
	case orderSignal:
		g.toGroup(syscall.Signal(o.Signal))
	case orderDeadline:
		g.setDeadline(o.At)
		g.tryReport(report{Kind: reportDeadline, At: g.deadline})
	case orderStop:
		g.stopped = g.stopped || !g.ended
		g.end(clock(), o.At)
	}
}

// tryReport reports, unless the wrapper does not read because it is stopped.
func (g *guard) tryReport(r report) {
	select {
	case g.reports <- r:
	default:
	}
}

// act takes the step of the plan that is due.
func (g *guard) act(now int64) {
	switch g.step(now) {
	case stepTerm:
		g.notices = notices{}
		g.toTree(syscall.SIGTERM, syscall.SIGCONT) // a stopped process cannot act on TERM
	case stepKill:
		g.notices = notices{}
		g.toTree(syscall.SIGKILL)
	case stepNone:
		if g.killing && due(g.lookAt, now) {
			g.lookAt = 0
			g.toTree(syscall.SIGKILL)
		}
	}
}

// batch is how many dead processes are reaped at a time. Processes that fork and exit
// leave dead processes without end, and the plan must not wait for that.
const batch = 64

// ready is a channel that can always be received from.
var ready = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// reap reaps some dead processes, and reports whether the whole tree is gone. more is
// ready at once if there may be more to reap, and nil if not.
func (g *guard) reap() (gone bool, more <-chan struct{}) {
	for range batch {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err == syscall.ECHILD:
			return adoptsOrphans || g.empty(), nil
		case err != nil || pid == 0:
			return false, nil
		case pid != g.pid:
			g.lookSoon() // it may have left a process
		case ws.Stopped():
			g.tryReport(report{Kind: reportStopped, Signal: int32(ws.StopSignal())})
		default:
			g.ended, g.status = true, ws
			g.lookSoon()
			rest := clock() + int64(exitGrace)
			g.end(rest, later(rest, g.grace))
		}
	}
	return false, ready
}

const (
	firstLook = 2 * time.Millisecond
	lastLook  = 128 * time.Millisecond
	rareLook  = 5 * time.Second // while a process is left that cannot be ended
)

// stubborn is how long after KILL a process is reported that does not end.
const stubborn = 2 * time.Second

// nextLook returns the time of the next look for members of the tree that the last look
// missed, 0 for never. On systems that do not deliver orphans to the guard, their end causes
// no signal either.
func (g *guard) nextLook(now int64) int64 {
	if !g.killing && (adoptsOrphans || !g.ended) {
		return 0
	}
	if g.lookAt == 0 || g.lookAt <= now {
		g.lookAt = now + int64(g.lookInterval)
		longest := lastLook
		if g.stuck {
			longest = rareLook
		}
		g.lookInterval = min(2*g.lookInterval, longest)
	}
	return g.lookAt
}

// lookSoon brings the next look forward. Looks take at most half of the time.
func (g *guard) lookSoon() {
	if g.killing {
		g.lookInterval = max(firstLook, g.took)
		g.lookAt = sooner(g.lookAt, clock()+int64(g.lookInterval))
	}
}

// toGroup signals the child's process group. It reports a TERM that the group may not be
// sent; the other signals come from the terminal, which reaches all users.
func (g *guard) toGroup(sig syscall.Signal) {
	if g.grouped() {
		if err := unix.Kill(-g.pid, sig); err == unix.EPERM && sig == syscall.SIGTERM {
			g.survives(g.pid, unix.EPERM)
		}
		return
	}
	tree, _ := g.tree()
	for _, e := range tree {
		if e.pgid == g.pid {
			_ = e.signal(sig)
		}
	}
}

// grouped reports whether the id of the child's group still belongs to it: until its
// leader has been reaped, and then while the guard has another child in it. A chain of
// processes that fork and exit always has one there.
func (g *guard) grouped() bool { return !g.ended || anchored(g.pid) }

// toTree signals the child's group and all other descendants, and reports a process that
// cannot be ended. The group comes first: that needs no look at the process table, and
// misses no member.
func (g *guard) toTree(signals ...syscall.Signal) {
	grouped := g.grouped()
	for _, sig := range signals {
		if grouped {
			_ = unix.Kill(-g.pid, sig)
		}
	}
	tree, _ := g.tree() // after an error the next look may have more luck
	g.reportLeftover(tree)
	denied := 0
	for _, e := range tree {
		err := error(nil)
		if grouped && e.pgid == g.pid {
			err = unix.Kill(e.pid, 0) // it got the group's signals, if it may have any
		} else {
			err = e.signal(signals[0])
			for _, sig := range signals[1:] {
				_ = e.signal(sig)
			}
		}
		if errors.Is(err, unix.EPERM) && !e.dead && denied == 0 {
			denied = e.pid
		}
	}
	switch slow := g.outlives(tree); {
	case denied != 0:
		g.survives(denied, unix.EPERM)
	case slow:
		g.survives(g.survivor.pid, 0)
	default:
		g.stuck = false
	}
}

// outlives reports whether g.survivor has been alive for long after KILL.
func (g *guard) outlives(tree []procEntry) bool {
	tree = slices.DeleteFunc(slices.Clone(tree), func(e procEntry) bool { return e.dead })
	if !g.killing || len(tree) == 0 {
		return false
	}
	now := clock()
	if !slices.ContainsFunc(tree, func(e procEntry) bool { return e.pid == g.survivor.pid && e.start == g.survivor.start }) {
		g.survivor, g.since = tree[0], now
	}
	return now-g.since >= int64(stubborn)
}

// reportLeftover reports, once, a process that the child has left behind. It may have died
// of the signal to the group already.
func (g *guard) reportLeftover(tree []procEntry) {
	if len(tree) > 0 && g.ended && !g.stopped && !g.late && !g.leftover {
		g.leftover = true
		g.tryReport(report{Kind: reportLeftover, Pid: int32(tree[0].pid)})
	}
}

// survives reports, at growing intervals, a process that cannot be ended.
func (g *guard) survives(pid int, reason syscall.Errno) {
	g.stuck = true
	if g.notices.due(clock()) {
		g.tryReport(report{Kind: reportSurvives, Pid: int32(pid), Errno: uint32(reason)})
	}
}

// tree lists the remaining processes of the child and its descendants. The list is partial
// if a step of the plan becomes due during the listing.
func (g *guard) tree() ([]procEntry, error) {
	began := clock()
	all, err := processes(g.next())
	g.took = time.Duration(clock() - began)
	found := under(all, func(e procEntry) bool {
		if adoptsOrphans {
			return e.ppid == os.Getpid()
		}
		start, seen := g.seen[e.pid]
		return e.ppid == os.Getpid() || e.pgid == g.pid || seen && start == e.start
	})
	for _, e := range found {
		g.seen[e.pid] = e.start
	}
	return found, err
}

// empty reports whether the tree is gone, on systems where wait cannot report it.
func (g *guard) empty() bool {
	tree, err := g.tree()
	return err == nil && len(tree) == 0
}

// report starts to send reports. The returned channel closes when all are sent.
func (g *guard) report(socket *os.File) <-chan struct{} {
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		for r := range g.reports {
			_, _ = socket.Write(encode(r)) // a wrapper that is gone needs no report
		}
	}()
	return flushed
}
