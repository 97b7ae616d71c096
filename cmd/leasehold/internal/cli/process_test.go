//go:build linux || darwin

package cli_test

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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
	p := &process{Cmd: exec.Command(command(t), args...), t: t, said: new(output)}
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
			t.Logf("leasehold said:\n%s", p.said)
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

func (p *process) wantCode(want int) {
	p.t.Helper()
	stuck := time.AfterFunc(bound, func() { _ = p.Process.Kill() })
	defer stuck.Stop()
	_ = p.Wait() // only the code counts
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
	awaitText(p.t, p.said, text)
}

// serves waits until a service serves, and returns its URL.
func (p *process) serves() string {
	p.t.Helper()
	p.awaitSaid("msg=serving")
	_, url, _ := strings.Cut(p.said.String(), "url=")
	url, _, _ = strings.Cut(url, " ")
	return url
}

func awaitText(t *testing.T, o *output, text string) {
	t.Helper()
	for end := time.Now().Add(bound); !strings.Contains(o.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("printed %q, want %q", o, text)
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
