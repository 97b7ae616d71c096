//go:build linux || darwin

package cli_test

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
)

// process is the command in a process of its own.
type process struct {
	*exec.Cmd
	t    *testing.T
	said *output // on standard error
}

// launch starts the command, as adjusted, and kills it at the end of the test.
func launch(t *testing.T, adjust func(*exec.Cmd), args ...string) *process {
	t.Helper()
	return start(t, exec.Command(command(t), args...), adjust)
}

// start is launch of any program.
func start(t *testing.T, cmd *exec.Cmd, adjust func(*exec.Cmd)) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t, said: new(output)}
	p.Stderr = p.said
	p.WaitDelay = bound // the guard and its processes also hold standard error
	if adjust != nil {
		adjust(p.Cmd)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // most have ended
		_ = p.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd.Path, p.said)
		}
	})
	return p
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the end of the process.
func (p *process) end() {
	stuck := time.AfterFunc(bound, func() { _ = p.Process.Kill() })
	defer stuck.Stop()
	_ = p.Wait() // only the code counts
}

func (p *process) wantCode(want int) {
	p.t.Helper()
	p.end()
	if got := p.ProcessState.ExitCode(); got != want {
		p.t.Errorf("exit code %d, want %d", got, want)
	}
}

func (p *process) wantSaid(text string) {
	p.t.Helper()
	if !strings.Contains(p.said.String(), text) {
		p.t.Errorf("printed %q, want %q", p.said, text)
	}
}

func (p *process) awaitSaid(text string) {
	p.t.Helper()
	p.said.await(p.t, text)
}

// serves waits until a service serves, and returns its URL.
func (p *process) serves() string {
	p.t.Helper()
	p.awaitSaid("msg=serving")
	_, url, _ := strings.Cut(p.said.String(), "url=")
	url, _, _ = strings.Cut(url, " ")
	return url
}

// command returns the path of the command.
func command(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("leasehold") // testscript has put it there
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs the command to its end, and returns its output and its exit code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command(t), args...)
	out, err := cmd.CombinedOutput()
	return string(out), exitCode(t, err)
}

// exitCode returns the exit code of a process that has ended with err.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		t.Error(err)
	}
	return 0
}

// acquire takes the lock demo by the command, and returns the id of the lease.
func acquire(t *testing.T, url string) string {
	t.Helper()
	out, code := run(t, "acquire", "--store", url, "--owner", "script", "--ttl", "5m", "demo")
	id, _, ok := strings.Cut(out, " ")
	if code != 0 || !ok {
		t.Fatalf("exit code %d: %s", code, out)
	}
	return id
}

func newClient(t *testing.T, url string) *leasehold.Client {
	t.Helper()
	d, err := stores.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := leasehold.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// awaitLock waits until done accepts the snapshot of a lock.
func awaitLock(t *testing.T, client *leasehold.Client, key string, done func(leasehold.Snapshot) bool) (s leasehold.Snapshot) {
	t.Helper()
	eventually(t, func() bool {
		var err error
		if s, err = client.Inspect(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		return done(s)
	}, key, &s)
	return s
}

func isHeld(s leasehold.Snapshot) bool { return len(s.Holders) == 1 }

// wantFree checks that a lock is not held.
func wantFree(t *testing.T, client *leasehold.Client, key string) {
	t.Helper()
	if snap, err := client.Inspect(t.Context(), key); err != nil || len(snap.Holders) > 0 {
		t.Errorf("%q is left behind: %+v, %v", key, snap, err)
	}
}

// hasWaiters accepts the snapshot of a lock with n waiters.
func hasWaiters(n int) func(leasehold.Snapshot) bool {
	return func(s leasehold.Snapshot) bool { return len(s.Waiters) == n }
}

// eventually waits until done returns true. If it does not, the test fails and prints what.
func eventually(t interface{ Fatalf(string, ...any) }, done func() bool, what ...any) {
	if tb, ok := t.(testing.TB); ok {
		tb.Helper()
	}
	for end := time.Now().Add(bound); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %+v", what)
		}
	}
}

// output collects the output of a process. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// await waits until the output contains the text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() bool { return strings.Contains(o.String(), text) }, text, "in", o)
}
