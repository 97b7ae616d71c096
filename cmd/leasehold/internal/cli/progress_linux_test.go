package cli_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/ptytest"
)

func TestRun_WaitOnATerminalIsOneLineThatFollowsTheQueue(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	first := startRun(t, url, "--owner", "first", "demo", "sh", "-c", begin+ready+"read line")
	first.deadline()
	leave := filepath.Join(t.TempDir(), "leave")
	second := startShown(t, nil, "run", "-q", "--store", url, "--owner", "second", "demo",
		"sh", "-c", `until test -e "$0"; do sleep 0.05; done`, leave)
	awaitLock(t, newClient(t, url), "demo", hasWaiters(1))

	_, slave, screen := openTerminal(t)
	third := startShown(t, slave, "run", "--store", url, "demo", "true")
	screen.await(t, `for "demo" at place 2: held by first/`)
	eventually(t, func() bool { return secondsPass(screen.String()) }, "seconds that pass by themselves in", screen)
	first.stdin.Close()
	screen.await(t, `at place 1: held by second/`)
	if err := os.WriteFile(leave, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second.wantCode(0)
	third.wantCode(0)
	eventually(t, func() bool { return strings.HasSuffix(screen.String(), "\r\x1b[K") }, "an empty line in", screen)
	if text := screen.String(); strings.Contains(text, "\n") {
		t.Errorf("more than a line: %q", text)
	}
}

// TestRun_AStoppedTerminalKeepsNoLock: Ctrl-S stops the terminal of a waiting run, or its
// connection hangs. The run must still take the lock, run its command, and release.
func TestRun_AStoppedTerminalKeepsNoLock(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	first := startRun(t, url, "demo", "sh", "-c", begin+ready+"read line")
	first.deadline()
	_, slave, screen := openTerminal(t)
	second := startShown(t, slave, "run", "--store", url, "demo", "true")
	screen.await(t, `for "demo" at place 1`)
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil {
		t.Fatal(err)
	}
	first.stdin.Close()
	second.wantCode(0)
}

// startShown starts the command with a terminal for its standard error, or nil.
func startShown(t *testing.T, stderr *os.File, args ...string) *process {
	t.Helper()
	return launch(t, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "TERM=xterm")
		if stderr != nil {
			cmd.Stderr = stderr
		}
	}, args...)
}

var atPlaceTwo = regexp.MustCompile(`waiting (\S+) for "demo" at place 2`)

// secondsPass reports whether the line at place 2 was drawn twice within less than five
// seconds. After five seconds it is drawn in any case, with a new request for the holder.
func secondsPass(text string) bool {
	last := time.Duration(-1)
	for _, shown := range atPlaceTwo.FindAllStringSubmatch(text, -1) {
		waited, err := time.ParseDuration(shown[1])
		if err != nil {
			return false
		}
		if last >= 0 && waited > last && waited-last < 5*time.Second {
			return true
		}
		last = waited
	}
	return false
}

// openTerminal returns the two ends of a pseudo-terminal, and its output.
func openTerminal(t *testing.T) (user, program *os.File, screen *output) {
	t.Helper()
	user, program = ptytest.Open(t)
	screen = new(output)
	go func() { _, _ = io.Copy(screen, user) }() // ends when the last end is closed
	return user, program, screen
}
