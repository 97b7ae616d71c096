//go:build linux || darwin

package proc

import (
	"encoding/json"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestRun_C4_KillingTheWrapperKillsEveryDescendant(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	w.signal(syscall.SIGKILL)
	w.out.wantEnd(bound)
}

func TestRun_C4_KillingTheWrappersGroupKillsEveryDescendant(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	kill(t, -w.cmd.Process.Pid, syscall.SIGKILL)
	w.out.wantEnd(bound)
}

func TestRun_C4_KillingTheOuterOfTwoWrappersKillsBothTrees(t *testing.T) {
	live.Test(t)
	inner, _ := json.Marshal(wrapperScript{Role: "tree"})
	w := startWrapper(t, wrapperScript{Args: []string{
		"sh", "-c", `PROC_ROLE=wrapper PROC_SCRIPT=$1 "$0" 3>&1 4>/dev/null 5</dev/null; exit 1`, os.Args[0], string(inner),
	}}, nil)
	w.out.wantUp(treeSize)
	w.signal(syscall.SIGKILL)
	w.out.wantEnd(bound)
}

func TestRun_C4_KillingTheGuardKillsEveryDescendant(t *testing.T) {
	live.Test(t)
	skip.Unless(t, adoptsOrphans, "a subreaper")
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	kill(t, w.guard, syscall.SIGKILL)
	w.out.wantEnd(bound)
	if r := w.report(); r.Err != ErrGuardLost.Error() || r.Result.Code != 137 {
		t.Errorf("%+v, %v; want 137, %v", r.Result, r.Err, ErrGuardLost)
	}
}

func TestRun_C4_TheGuardSurvivesWhatIsMeantForOthers(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Role: "echo"}, nil)
	w.out.want("up")
	guard := w.guard
	for _, sig := range slices.Concat(forwarded, deadly) {
		kill(t, guard, sig.(syscall.Signal))
	}
	w.signal(syscall.SIGUSR1)
	w.out.want("SIGUSR1") // by way of the guard
	w.signal(syscall.SIGKILL)
	w.out.wantEnd(bound)
}

func TestDeadline_IsKeptWhileTheWrapperIsStopped(t *testing.T) {
	live.Test(t)
	const life, grace = 600 * time.Millisecond, 300 * time.Millisecond
	w := startWrapper(t, wrapperScript{Role: "tree", Grace: grace}, nil)
	w.out.wantUp(treeSize)
	began := time.Now()
	w.setDeadline(life)
	w.signal(syscall.SIGSTOP)
	w.out.wantEnd(bound)
	if took := time.Since(began); took < life {
		t.Errorf("killed after %v, before the deadline of %v", took, life)
	}
	w.signal(syscall.SIGCONT)
	if r := w.report(); !r.Result.DeadlineHit || r.Result.Code != 137 || r.Err != "" {
		t.Errorf("%+v, %v; want 137 by the deadline", r.Result, r.Err)
	}
}

func TestDeadline_BeginsWithTermWhileTheWrapperIsStopped(t *testing.T) {
	live.Test(t)
	w := startWrapper(t, wrapperScript{Role: "echo", Grace: time.Hour}, nil)
	w.out.want("up")
	w.setDeadline(time.Hour + 300*time.Millisecond)
	w.signal(syscall.SIGSTOP)
	w.out.wantAmid("SIGTERM", "SIGCONT")
	w.out.wantEnd(bound)
	w.signal(syscall.SIGCONT)
	if r := w.report(); *r.Result != (Result{Code: 7, DeadlineHit: true}) {
		t.Errorf("%+v, want the child's own code 7, by the deadline", r.Result)
	}
}

func TestDeadline_IsNotPushedForwardByAGuardThatHangs(t *testing.T) {
	live.Test(t)
	skip.Unless(t, adoptsOrphans, "a subreaper")
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	w.setDeadline(5 * time.Second) // by then it is stopped
	kill(t, w.guard, syscall.SIGSTOP)
	w.setDeadline(time.Hour)
	w.out.wantEnd(bound)
	if r := w.report(); r.Err != ErrGuardLost.Error() {
		t.Errorf("%+v, %v; want %v", r.Result, r.Err, ErrGuardLost)
	}
}

func TestDeadline_IsKeptByTheWrapperWhileTheGuardIsStopped(t *testing.T) {
	live.Test(t)
	skip.Unless(t, adoptsOrphans, "a subreaper")
	w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
	w.out.wantUp(treeSize)
	kill(t, w.guard, syscall.SIGSTOP)
	w.setDeadline(300 * time.Millisecond)
	w.out.wantEnd(bound)
	if r := w.report(); r.Err != ErrGuardLost.Error() || !r.Result.DeadlineHit {
		t.Errorf("%+v, %v; want the deadline hit, %v", r.Result, r.Err, ErrGuardLost)
	}
}
