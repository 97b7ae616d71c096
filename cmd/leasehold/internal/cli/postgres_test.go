//go:build linux || darwin

package cli_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestPostgres_AJobRunsUnderALockThatOthersSee(t *testing.T) {
	server := postgrestest.Start(t, "synchronous_commit=on", "fsync=on")
	url := server.URL() + "&create=true"
	leasehold := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command(t), append([]string{args[0], "--store", url}, args[1:]...)...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: code %d, want %d: %s", args, got, code, out)
		}
		return string(out)
	}
	if out := leasehold(0, "run", "nightly", "--", "echo", "once"); out != "once\n" {
		t.Errorf("%q", out)
	}
	leasehold(0, "acquire", "--ttl", "1m", "nightly")
	if out := leasehold(75, "run", "-n", "nightly", "--", "echo", "twice"); strings.Contains(out, "twice") {
		t.Errorf("%q", out)
	}
	if out := leasehold(0, "list"); !strings.Contains(out, "nightly") {
		t.Errorf("%q", out)
	}
}

func TestPostgres_DoctorSaysWhatIsMissing(t *testing.T) {
	server := postgrestest.Start(t, "synchronous_commit=on", "fsync=on")
	if out, code := doctor(t, server.URL()); code != 1 || !strings.Contains(out, `CREATE TABLE IF NOT EXISTS "leasehold"`) {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := doctor(t, server.URL()+"&create=true"); code != 0 || !strings.Contains(out, "a waiter is woken") {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := doctor(t, server.URL(), server.URL()+"&table=other"); code != 1 || !strings.Contains(out, "one and the same server") {
		t.Errorf("code %d: %s", code, out)
	}
}
