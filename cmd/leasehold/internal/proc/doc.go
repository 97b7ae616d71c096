// Package proc runs a command and ends all its processes when its permission to run ends.
// It is the wrapper of "leasehold run", but has no code for locks: its caller passes a
// command and a deadline, and keeps pushing the deadline forward. A binary that imports
// this package is its own guard too: init takes care of that.
//
// # Three processes
//
//	wrapper ── guard ── child ── grandchildren …
//
// The wrapper is the caller. [Start], or [Prepare] before it, executes the same
// binary again as a guard, and the guard starts the child in a process group of
// its own. The guard is a subreaper: a grandchild that calls setsid, forks twice
// or otherwise loses its parent becomes a child of the guard. So when wait returns "no
// child left", the kernel itself confirms that the whole tree is gone, and killing
// descendants until then misses no process.
//
// The alternative is a wrapper with two children, the command and the guard. It fails where
// it matters: when the wrapper is killed, grandchildren without a parent go to init, and the
// guard can no longer distinguish them from other processes.
//
// # Failures
//
//   - The wrapper is killed: the guard's socket ends, and it kills the tree.
//   - The wrapper hangs or is stopped: the guard holds the deadline, an absolute
//     reading of a clock that both share and that counts on while the machine
//     sleeps. It sends TERM one grace before and KILL at the deadline, unless it
//     received a later deadline before. Once TERM is sent, the end is final: a child
//     that has to exit must not find its lease alive again. A command that has not begun
//     by its deadline does not begin.
//   - The guard is killed: the kernel kills the child (PDEATHSIG). The other descendants
//     become children of the wrapper, a subreaper too, and it kills them.
//   - The guard hangs, is stopped or gets no processor: the wrapper keeps the same
//     times, 250 ms later, and kills the tree in its place. The guard then has 5 s to
//     report how the command ended, and is killed if it does not; the rest is as above.
//     A deadline counts as pushed forward once the guard has confirmed it, so a hang is
//     found also while the caller keeps renewing.
//   - The child ends and leaves descendants: they get 200 ms to end without a signal
//     (a "tee" that writes the last lines), then TERM, then KILL after
//     the grace. [Process.Wait] returns when the last descendant is gone.
//
// If wrapper and guard are killed or stopped in the same instant, there is no protection:
// the child still dies with the guard, its children do not. That is why the guard
// has a group and a name of its own: it survives if the wrapper's group or everything
// called "leasehold" is killed. Three more kinds of processes are out of reach: processes
// that another daemon starts for the tree (systemd-run, docker, at), processes that changed
// to another user and that the guard may not signal, and processes that the kernel itself
// cannot end (state D). For the last two kinds Wait does not return, because they still
// run. [Command.Survivor] reports them.
//
// # Terminal
//
// If the wrapper is in the foreground and its standard input is the terminal, the
// child's group becomes the foreground group, and Ctrl-C goes to the child alone.
// Otherwise Ctrl-C goes to the wrapper alone, which forwards it. Either way it
// arrives once. When the child stops (Ctrl-Z), the wrapper takes the terminal back
// and stops with its group, as the shell expects of a job; "fg" and "bg" continue
// both. A stopped wrapper does not renew, so a suspended child lives at most until
// its deadline. If there is no shell that could continue the job, the stop is
// undone, as the kernel does it. A child that was stopped because it needs the terminal
// gets it if the wrapper has it. If the wrapper can never get it, the child is ended as by
// [Process.Stop].
//
// # Systems
//
// Linux: everything above; it needs /proc. macOS has neither subreaper nor
// PDEATHSIG: the tree is the process group and the descendants seen so far, a
// process that leaves the group and loses its parent between two looks escapes,
// and if the guard is killed the child dies only as soon as the wrapper notices.
// The package does not build for other systems.
//
// The calling process must start other processes through this package only while
// one of its own runs: after the death of a guard it takes every child that it did
// not have at the first Start, and that is no guard, for an orphan of the tree.
package proc
