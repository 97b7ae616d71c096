//go:build linux || darwin

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/respproxy"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

// leave takes the lock demo by acquire, and returns the id of the lease that is left.
func leave(t *testing.T, url string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command(t), "acquire", "--store", url, "--owner", "script", "--ttl", "5m", "demo").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))[0]
}

// TestBreakAndRelease_AuditWhatALostReplyLeavesOpen loses the reply to a break, which is
// asked once, and to the first try of a release.
func TestBreakAndRelease_AuditWhatALostReplyLeavesOpen(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	trail := filepath.Join(t.TempDir(), "trail")
	play := func(code int, text string, args ...string) {
		t.Helper()
		lost := proxy.Add(respproxy.DropReply, 1, respproxy.Mentions(text))
		args = append(args, "--store", "redis://"+proxy.Addr()+"?timeout=1s", "--audit-log", trail)
		c := exec.CommandContext(t.Context(), command(t), args...)
		out, _ := c.CombinedOutput() // the code says how it ended
		if got := c.ProcessState.ExitCode(); got != code {
			t.Errorf("%q: exit code %d, want %d: %s", args, got, code, out)
		}
		lost.WaitFired(t, 1)
	}
	wantLines := func(want ...string) {
		t.Helper()
		text, err := os.ReadFile(trail)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines, want %d: %s", len(lines), len(want), text)
		}
		for i, line := range lines {
			if !strings.Contains(line, want[i]) {
				t.Errorf("line %q lacks %q", line, want[i])
			}
		}
	}
	id := leave(t, server.URL())
	play(69, "it is stuck", "break", "demo", id, "--reason", "it is stuck")
	unknown := `"event":"unreleased","key":"demo","lease":"` + id + `","owner":"script","by":"`
	wantLines(unknown)
	text, _ := os.ReadFile(trail)
	if !strings.Contains(string(text), `"reason":"unknown","detail":"it is stuck: `) {
		t.Errorf("%s", text)
	}
	id = leave(t, server.URL())
	play(0, id, "release", "demo", id)
	ended := `"event":"ended","key":"demo","lease":"` + id + `","reason":"released"`
	wantLines(unknown, ended)
}
