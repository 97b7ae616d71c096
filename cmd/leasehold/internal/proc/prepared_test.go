package proc

import (
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/test/await"
)

// prepare returns a guard that waits for its command.
func prepare(t *testing.T) *Prepared {
	t.Helper()
	g := Prepare()
	t.Cleanup(g.Close)
	<-g.ready
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g
}

func TestPrepared_TheCommandRunsUnderTheGuardThatWasThere(t *testing.T) {
	for name, dies := range map[string]bool{"and lives": false, "or under another if that has died": true} {
		t.Run(name, func(t *testing.T) {
			g := prepare(t)
			pid := g.guard.Pid
			if dies {
				kill(t, pid, syscall.SIGKILL)
				await.Until(t, g.link.ended, "the death of the guard")
			}
			p, err := Start(Command{Args: []string{"sh", "-c", "exit 7"}, Prepared: g})
			if err != nil {
				t.Fatal(err)
			}
			if was := p.guard.Pid == pid; was == dies {
				t.Errorf("the guard is %d; %d was prepared, and died: %t", p.guard.Pid, pid, dies)
			}
			g.Close() // has no effect: the guard belongs to p
			if r := wait(t, p); r != (Result{Code: 7}) {
				t.Errorf("%+v, want code 7", r)
			}
		})
	}
}

func TestPrepared_NothingIsLeftOfAGuardThatWasNotNeeded(t *testing.T) {
	g := prepare(t)
	pid := g.guard.Pid
	g.Close()
	g.Close()
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("kill of the guard: %v, want %v", err, unix.ESRCH)
	}
	if _, err := Start(Command{Args: []string{filepath.Join(t.TempDir(), "missing")}, Prepared: prepare(t)}); err == nil {
		t.Error("a command that does not exist was started")
	}
}

func TestPrepared_HasTheCallersOwnInputAndOutput(t *testing.T) {
	r, _ := pipe(t)
	if _, err := Start(Command{Args: []string{"true"}, Stdin: r, Prepared: prepare(t)}); err == nil {
		t.Error("a prepared guard was given another input")
	}
}
