package proc

import (
	"encoding/json"
	"fmt"
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
	inner, _ := json.Marshal(wrapperScript{Role: "tree"})
	for name, row := range map[string]struct {
		script wrapperScript
		kill   func(pid int) int // the pid or group to kill
	}{
		"the process": {wrapperScript{Role: "tree"}, func(pid int) int { return pid }},
		"its group":   {wrapperScript{Role: "tree"}, func(pid int) int { return -pid }},
		"the outer of two": {wrapperScript{Args: []string{
			"sh", "-c", `PROC_ROLE=wrapper PROC_SCRIPT=$1 "$0" 3>&1 4>/dev/null 5</dev/null; exit 1`, os.Args[0], string(inner),
		}}, func(pid int) int { return pid }},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWrapper(t, row.script, nil)
			w.out.wantUp(treeSize)
			kill(t, row.kill(w.cmd.Process.Pid), syscall.SIGKILL)
			w.out.wantEnd(bound)
		})
	}
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
	w.out.want("SIGUSR1") // the guard forwards it
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
	w.out.want("SIGTERM", "SIGCONT")
	w.out.wantEnd(bound)
	w.signal(syscall.SIGCONT)
	if r := w.report(); *r.Result != (Result{Code: 7, DeadlineHit: true}) {
		t.Errorf("%+v, want the child's own code 7, by the deadline", r.Result)
	}
}

// TestStop_HR_G10_TheWrapperActsForAGuardThatHangs: the wrapper ends the tree in time. If the
// guard continues afterwards, it reports the result; otherwise the wrapper reports
// ErrGuardLost.
func TestStop_HR_G10_TheWrapperActsForAGuardThatHangs(t *testing.T) {
	live.Test(t)
	skip.Unless(t, adoptsOrphans, "a subreaper")
	const killed, lost = syscall.SIGKILL, true
	for name, row := range map[string]struct {
		first time.Duration // the deadline before the guard hangs
		order string        // the order to the wrapper after that
		lost  bool          // the guard does not continue
		want  Result
	}{
		"stop, slow":                {0, "stop 0s", !lost, Result{Code: 137, Signal: killed, Stopped: true}},
		"stop, lost":                {0, "stop 200ms", lost, Result{Code: 137, Signal: killed, Stopped: true}},
		"deadline, slow":            {time.Hour, "deadline 200ms", !lost, Result{Code: 137, Signal: killed, DeadlineHit: true}},
		"deadline, lost":            {0, "deadline 300ms", lost, Result{Code: 137, Signal: killed, DeadlineHit: true}},
		"deadline that is not read": {5 * time.Second, "deadline 1h", lost, Result{Code: 137, Signal: killed}},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWrapper(t, wrapperScript{Role: "tree"}, nil)
			w.out.wantUp(treeSize)
			if row.first > 0 {
				w.setDeadline(row.first)
			}
			kill(t, w.guard, syscall.SIGSTOP)
			fmt.Fprintln(w.orders, row.order)
			w.out.wantEnd(bound)
			wantErr := ""
			if row.lost {
				wantErr = ErrGuardLost.Error()
			} else {
				kill(t, w.guard, syscall.SIGCONT)
			}
			r := w.report()
			if r.Result == nil { // the report about the deadline
				r = w.report()
			}
			r.Result.DeadlineHit = r.Result.DeadlineHit && row.order != "deadline 1h" // depends on the clock of the wrapper
			if r.Err != wantErr || *r.Result != row.want {
				t.Errorf("%+v, %v; want %+v, %v", *r.Result, r.Err, row.want, wantErr)
			}
		})
	}
}
