package filedriver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/leaktest"
)

// The tests start processes that are this binary again, with the name of a
// helper and its arguments in the environment.
const helperEnv = "FILEDRIVER_TEST_HELPER"

var helpers = map[string]func(args []string){}

func TestMain(m *testing.M) {
	if line := os.Getenv(helperEnv); line != "" {
		args := strings.Split(line, "\n")
		helpers[args[0]](args[1:])
		os.Exit(0)
	}
	leaktest.Main(m)
}

// process is a helper that runs.
type process struct {
	*exec.Cmd
	lines *bufio.Reader
	stdin io.WriteCloser
}

func startHelper(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startHelperWith(t, os.Args[0], nil, name, args...)
}

func startHelperWith(t *testing.T, program string, attributes *syscall.SysProcAttr, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program)
	cmd.SysProcAttr = attributes
	cmd.Env = append(os.Environ(), helperEnv+"="+strings.Join(append([]string{name}, args...), "\n"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	noError(t, err)
	stdout, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	p := &process{Cmd: cmd, lines: bufio.NewReader(stdout), stdin: stdin}
	t.Cleanup(p.kill)
	return p
}

// kill ends the helper at once, and is harmless after it has ended.
func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// expect waits until the helper prints a line that begins with prefix, and
// returns the rest.
func (p *process) expect(t *testing.T, prefix string) string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			line = err.Error()
		}
		got <- strings.TrimSuffix(line, "\n")
	}()
	select {
	case line := <-got:
		rest, ok := strings.CutPrefix(line, prefix)
		if !ok {
			t.Fatalf("the helper printed %q, want %q", line, prefix)
		}
		return rest
	case <-time.After(time.Minute):
		t.Fatalf("the helper never printed %q", prefix)
		return ""
	}
}

// awaitEOF blocks a helper until its parent closes the pipe or dies.
func awaitEOF() { _, _ = io.Copy(io.Discard, os.Stdin) }

// must ends a helper that cannot go on.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	return value
}
