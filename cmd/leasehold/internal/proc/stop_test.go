package proc

import (
	"errors"
	"math"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestStop_C3_KillsWhatIgnoresTermAndEveryGrandchild(t *testing.T) {
	live.Test(t)
	const grace = 300 * time.Millisecond
	p, out := start(t, roleCommand("tree", nil))
	out.wantUp(treeSize)
	began := time.Now()
	p.Stop(grace)
	p.Stop(time.Hour) // has no effect
	out.wantEnd(bound)
	if took := time.Since(began); took < grace {
		t.Errorf("killed after %v, before the grace of %v", took, grace)
	}
	want := Result{Code: 137, Signal: syscall.SIGKILL, Stopped: true}
	if r := wait(t, p); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	noChildren(t)
}

func TestStop_AChildThatWasStoppedObeys(t *testing.T) {
	live.Test(t)
	cmd := roleCommand("echo", nil)
	cmd.Background = true
	p, out := start(t, cmd)
	out.want("up")
	p.Signal(syscall.SIGSTOP)
	p.Stop(time.Hour)
	if r := wait(t, p); r != (Result{Code: 7, Stopped: true}) {
		t.Errorf("%+v, want the child's own code 7", r)
	}
}

func TestStop_CatchesAProcessThatKeepsForkingDaemons(t *testing.T) {
	live.Test(t)
	_, err := exec.LookPath("setsid")
	skip.Unless(t, err == nil, "setsid(1)")
	p, out := start(t, sh(`trap "" TERM; n=0
		while :; do n=$((n+1)); (setsid sleep 600 &); [ $n = 20 ] && echo up; [ $n -gt 400 ] && sleep 600; done`))
	out.want("up")
	p.Stop(0)
	out.wantEnd(bound)
	wait(t, p)
	noChildren(t)
}

func TestDeadline_FarAwayIsNoDeadline(t *testing.T) {
	live.Test(t)
	cmd := roleCommand("echo", nil)
	cmd.Deadline, cmd.Grace = time.Now().AddDate(3000, 0, 0), time.Second
	p, out := start(t, cmd)
	out.want("up")
	p.SetDeadline(cmd.Deadline)
	p.Stop(math.MaxInt64)
	if r := wait(t, p); r != (Result{Code: 7, Stopped: true}) {
		t.Errorf("%+v, want the child's own code 7", r)
	}
}

// TestDeadline_InThePastBeginsNothing: the command must not start, because it could do its work
// before an immediate kill.
func TestDeadline_InThePastBeginsNothing(t *testing.T) {
	live.Test(t)
	cmd := sh("sleep 1000")
	cmd.Deadline = time.Now().Add(-time.Hour)
	if _, err := Start(cmd); !errors.Is(err, ErrTooLate) {
		t.Errorf("%v, want %v", err, ErrTooLate)
	}
}
