// Package proc runs a command so that nothing of it outlives its permission to
// run. It is the wrapper under "leasehold run" and knows nothing of locks: it is
// given a command and a deadline that the caller keeps pushing forward. A binary that
// imports it is its own guard too, which its init takes care of.
//
// # Three processes
//
//	wrapper ── guard ── child ── grandchildren …
//
// The wrapper is the caller. [Start], or [Prepare] before it, executes the same
// binary once more as a guard, and the guard starts the child in a process group of
// its own. The guard is a subreaper: a grandchild that calls setsid, forks twice
// or otherwise loses its parent becomes a child of the guard. So "wait says there
// is no child left" is the kernel's own word that the whole tree is gone, and
// "kill my descendants until wait says so" misses nobody.
//
// The other shape, a wrapper with the child and a guard beside it, loses on the
// point that matters. When its wrapper is killed, the grandchildren without a
// parent go to init, and the guard can no longer tell them from strangers.
//
// # Who watches whom
//
//   - The wrapper is killed: the guard's socket ends, and it kills the tree.
//   - The wrapper hangs or is stopped: the guard holds the deadline, an absolute
//     reading of a clock that both share and that counts on while the machine
//     sleeps. It sends TERM one grace before and KILL at the deadline, unless it
//     was told a later one. Once the TERM is out, the end is settled: a child that
//     was told to leave must not find its lease alive again. A command that has not begun
//     by its deadline does not begin.
//   - The guard is killed: the kernel kills the child (PDEATHSIG), the others fall
//     to the wrapper, a subreaper too, and it kills them.
//   - The guard hangs, is stopped or gets no processor: the wrapper keeps the same
//     times, 250 ms later, and kills the tree in its place. The guard has 5 s then to
//     say how it ended, and is killed if it does not; the rest is as above. A deadline counts as pushed forward
//     once the guard has confirmed it, so it is found out also while the caller
//     keeps renewing.
//   - The child ends and leaves others behind: they get 200 ms to end by
//     themselves (a "tee" that writes the last lines), then TERM, then KILL after
//     the grace. [Process.Wait] returns when the last one is gone.
//
// Nothing helps when wrapper and guard are killed or stopped in the same instant:
// the child still dies with the guard, its children do not. That is why the guard
// has a group and a name of its own: killing the wrapper's group or everything
// called "leasehold" leaves it to do its work. Out of reach too: what the tree
// asks another daemon to start (systemd-run, docker, at), what has become another
// user the guard may not signal, and a process the kernel itself cannot end (state
// D): for the last two Wait does not return, because they do run. [Command.Survivor]
// reports them.
//
// # Terminal
//
// If the wrapper is in the foreground and its standard input is the terminal, the
// child's group becomes the foreground group, and Ctrl-C goes to the child alone.
// Otherwise Ctrl-C goes to the wrapper alone, which forwards it. Either way it
// arrives once. When the child stops (Ctrl-Z), the wrapper takes the terminal back
// and stops with its group, as the shell expects of a job; "fg" and "bg" continue
// both. A stopped wrapper renews nothing, so a suspended child lives at most until
// its deadline. If there is no shell that could continue the job, the stop is
// undone, as the kernel does it. A child stopped because it wanted a terminal that
// the wrapper has is given it; one that wants what nobody can ever give it is ended
// as by [Process.Stop].
//
// # Systems
//
// Linux: everything above; it needs /proc. macOS has neither subreaper nor
// PDEATHSIG: the tree is the process group and the descendants seen so far, a
// process that leaves the group and loses its parent between two looks escapes,
// and if the guard is killed the child dies only as soon as the wrapper notices.
// Elsewhere Start returns [errors.ErrUnsupported].
//
// The calling process must start other processes through this package only while
// one of its own runs: after the death of a guard it takes every child that it did
// not have at the first Start, and that is no guard, for an orphan of the tree.
package proc
