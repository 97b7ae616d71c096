package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRun_WaitOnATerminalIsOneLineThatFollowsTheQueue(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	first := startRun(t, url, "--owner", "first", "demo", "sh", "-c", begin+ready+"read line")
	first.deadline()
	second := exec.Command(command(t), "run", "-q", "--store", url, "--owner", "second", "demo", "sleep", "1")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Wait() }()
	awaitWaiters(t, url, 1)

	master, slave := openTerminal(t)
	screen := watchScreen(master)
	third := exec.Command(command(t), "run", "--store", url, "demo", "true")
	third.Stderr, third.Env = slave, append(os.Environ(), "TERM=xterm")
	if err := third.Start(); err != nil {
		t.Fatal(err)
	}
	screen.await(t, `waiting 0s for "demo" at place 2: held by first for `)
	screen.await(t, `waiting 1s for "demo" at place 2`) // by itself
	first.stdin.Close()
	screen.await(t, `at place 1: held by second for `)
	if err := third.Wait(); err != nil {
		t.Error(err)
	}
	screen.await(t, "\r\x1b[K")
	if text := screen.text(); strings.Contains(text, "\n") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("what is left of the line: %q", text)
	}
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
	if err != nil {
		t.Skip(err)
	}
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

// screen is what was written to a terminal.
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
	for end := time.Now().Add(bound); !strings.Contains(s.text(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("shown %q, want %q", s.text(), text)
		}
	}
}
