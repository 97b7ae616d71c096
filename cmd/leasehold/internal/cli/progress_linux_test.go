package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
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
	awaitWaiters(t, url, 1)

	master, slave := openTerminal(t)
	screen := watchScreen(master)
	third := startShown(t, slave, "run", "--store", url, "demo", "true")
	screen.await(t, `for "demo" at place 2: held by first/`)
	screen.awaitWhere(t, "the seconds pass by themselves", secondsPass)
	first.stdin.Close()
	screen.await(t, `at place 1: held by second/`)
	if err := os.WriteFile(leave, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second.wantCode(0)
	third.wantCode(0)
	screen.awaitWhere(t, "nothing is left of the line", func(text string) bool { return strings.HasSuffix(text, "\r\x1b[K") })
	if text := screen.text(); strings.Contains(text, "\n") {
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
	master, slave := openTerminal(t)
	screen := watchScreen(master)
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

func awaitWaiters(t *testing.T, url string, n int) {
	t.Helper()
	client := newClient(t, url)
	for end := time.Now().Add(bound); ; time.Sleep(5 * time.Millisecond) {
		s, err := client.Inspect(t.Context(), "demo")
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", s, err)
		}
		if len(s.Waiters) == n {
			return
		}
	}
}

// openTerminal returns the two ends of a pseudo-terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	skip.Unless(t, err == nil, "a terminal")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// screen collects the output to a terminal.
type screen struct {
	mu   sync.Mutex
	seen []byte
}

func watchScreen(master *os.File) *screen {
	s := new(screen)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf) // fails when the last end is closed
			s.mu.Lock()
			s.seen = append(s.seen, buf[:n]...)
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.seen)
}

func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	s.awaitWhere(t, text, func(shown string) bool { return strings.Contains(shown, text) })
}

func (s *screen) awaitWhere(t *testing.T, what string, shown func(text string) bool) {
	t.Helper()
	for end := time.Now().Add(bound); !shown(s.text()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("shown %q, want %q", s.text(), what)
		}
	}
}
