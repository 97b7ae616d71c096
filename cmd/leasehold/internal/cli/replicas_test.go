//go:build linux || darwin

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// A command that is not to run without replicas that know of its lock is not
// started without them, and who asks for what the server does not offer is told.
func TestRun_StartsNothingWithoutTheReplicasThatAreAskedFor(t *testing.T) {
	live.Test(t)
	t.Parallel()
	alone := redistest.Start(t)
	without := redistest.Start(t, "--rename-command", "WAIT", "")
	redistest.StartReplica(t, without)
	pair := redistest.Start(t)
	redistest.StartReplica(t, pair)
	for name, row := range map[string]struct {
		url  string
		code int
		says string
	}{
		"none":         {alone.URL() + "?replicas=1", 69, "not replicated: 0 of 1 replicas are connected"},
		"without WAIT": {without.URL() + "?replicas=1", 64, "does not offer WAIT"},
		"one":          {pair.URL() + "?replicas=1&timeout=10s&replica-timeout=5s", 0, ""},
	} {
		mark := filepath.Join(t.TempDir(), "ran")
		cmd := exec.CommandContext(t.Context(), command(t), "run", "--store", row.url, "--max-outage", "1s", "demo", "touch", mark)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != row.code || !strings.Contains(string(out), row.says) {
			t.Errorf("%s: code %d, want %d and %q:\n%s", name, code, row.code, row.says, out)
		}
		if _, err := os.Stat(mark); (err == nil) != (row.code == 0) {
			t.Errorf("%s: the command ran: %t", name, err == nil)
		}
	}
}
