package proc

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

const chain = `
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
for _ in range(5): os.fork() # chains of which the machine has too few processors
while True:
    if os.fork(): os._exit(0)
`

// TestStop_HR_F8_EndsAChainOfProcessesThatForkAndExit: each lives for less than a
// look at the table of processes takes, and their leader is gone.
func TestStop_HR_F8_EndsAChainOfProcessesThatForkAndExit(t *testing.T) {
	live.Test(t)
	for range 3 {
		p, out := start(t, Command{Args: []string{"python3", "-c", chain}})
		out.want("up")
		p.Stop(400 * time.Millisecond) // by then the leader has been reaped
		began := time.Now()
		out.wantEnd(bound)
		if took := time.Since(began); took > 15*time.Second {
			live.Late(t, "the chain outlived KILL by %v", took-400*time.Millisecond)
		}
		wait(t, p)
	}
	noChildren(t)
}

// TestRun_HR_F8_SignalsOfEveryKindAreForwarded: all that Go lets a program have.
func TestRun_HR_F8_SignalsOfEveryKindAreForwarded(t *testing.T) {
	live.Test(t)
	signals := []syscall.Signal{
		syscall.SIGURG, syscall.SIGIO, syscall.SIGVTALRM, syscall.SIGPWR, syscall.SIGXCPU, syscall.SIGXFSZ,
		syscall.SIGABRT, syscall.SIGSTKFLT, 35, 36, 50, 64,
	}
	var numbers []string
	for _, sig := range signals {
		numbers = append(numbers, strconv.Itoa(int(sig)))
	}
	w := startWrapper(t, wrapperScript{Args: []string{
		"bash", "-c", `exec 2>/dev/null; for s in ` + strings.Join(numbers, " ") + `; do trap "echo $s" $s; done; echo up; while :; do sleep 0.05; done`,
	}}, nil)
	w.out.want("up")
	for _, sig := range signals {
		w.signal(sig)
		w.out.await(strconv.Itoa(int(sig)))
	}
	w.signal(syscall.SIGKILL)
	w.out.wantEnd(bound)
}

// TestRun_HR_F8_AConnectionThatBreaksIsNoSignalForTheCommand: the kernel sends PIPE to
// whoever writes to one, as the wrapper does when its store has gone. A command dies of
// it unless it does something about it.
func TestRun_HR_F8_AConnectionThatBreaksIsNoSignalForTheCommand(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Args: []string{
		"bash", "-c", `for s in PIPE WINCH; do trap "echo $s" $s; done; echo up; while :; do sleep 0.05; done`,
	}}, nil)
	w.out.want("up")
	fmt.Fprintln(w.orders, "peer-gone")
	w.report()
	w.signal(syscall.SIGWINCH)
	w.out.want("WINCH")
	w.signal(syscall.SIGKILL)
	w.out.wantEnd(bound)
}

// TestStop_HR_G10_AGuardThatIsSlowIsNotKilled: the wrapper ends the tree in its
// place, in time, and leaves it the time to say how that ended.
func TestStop_HR_G10_AGuardThatIsSlowIsNotKilled(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	kill(t, w.guard, syscall.SIGSTOP)
	fmt.Fprintln(w.orders, "stop 0s")
	w.out.wantEnd(bound)
	kill(t, w.guard, syscall.SIGCONT)
	want := Result{Code: 137, Signal: syscall.SIGKILL, Stopped: true}
	if r := w.report(); r.Err != "" || *r.Result != want {
		t.Errorf("%+v, %v; want %+v", r.Result, r.Err, want)
	}
}

func TestDeadline_HR_G10_AGuardThatIsSlowIsNotKilled(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	w.setDeadline(time.Hour)
	kill(t, w.guard, syscall.SIGSTOP)
	w.setDeadline(200 * time.Millisecond)
	w.out.wantEnd(bound)
	kill(t, w.guard, syscall.SIGCONT)
	want := Result{Code: 137, Signal: syscall.SIGKILL, DeadlineHit: true}
	if r := w.report(); r.Err != "" || *r.Result != want {
		t.Errorf("%+v, %v; want %+v", r.Result, r.Err, want)
	}
}

// await reads up to a line. What Go's own runtime sends itself as SIGURG may stand
// before it.
func (l *lines) await(text string) {
	l.t.Helper()
	must(l.f.SetReadDeadline(time.Now().Add(bound)))
	for {
		got, err := l.r.ReadString('\n')
		if err != nil {
			l.t.Fatalf("read %q, %v; want %q", got, err, text)
		}
		if strings.TrimSpace(got) == text {
			return
		}
	}
}
