package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/daemon"
)

// patience bounds every wait for a server. It is long because the machine may
// be busy, and is used up only if there is a fault.
const patience = 20 * time.Second

// process is a server that runs, or has run.
type process struct {
	cmd  *exec.Cmd
	log  *log
	done chan struct{} // closed when the process is gone and reaped
}

// spawn starts a server and returns when its log says that it is ready, or has
// the mark. The log is the process's own: an answer on the port might come from
// another server that was faster to bind it.
func spawn(cmd *exec.Cmd, marks ...string) (*process, error) {
	p := &process{cmd: cmd, log: newLog(marks), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// A child that saves in the background inherits the log; do not wait for it.
	cmd.WaitDelay = time.Second
	dieWithParent(cmd)

	if err := daemon.Start(cmd, p.done); err != nil {
		return nil, err
	}
	return p, p.awaitReady()
}

func (p *process) awaitReady() error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.log.ready:
		return nil
	case <-p.done:
		return fmt.Errorf("it ended at once:\n%s", p.log.tail())
	case <-timeout.C:
		return errors.Join(fmt.Errorf("not ready after %v:\n%s", patience, p.log.tail()), p.kill())
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process, stopped or not, and waits until it is reaped.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("still there %v after SIGKILL", patience)
	}
}

// readyMarks are the log lines of a server and a sentinel that are up.
var readyMarks = []string{"Ready to accept connections", "Sentinel ID is"}

// log stores a server's output, and signals when the server is ready.
type log struct {
	ready chan struct{}
	marks []string // that mean ready

	mu    sync.Mutex
	text  strings.Builder
	found bool
}

func newLog(marks []string) *log {
	return &log{ready: make(chan struct{}), marks: append(marks, readyMarks...)}
}

// Write implements [io.Writer].
func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	for _, mark := range l.marks {
		// The whole text is searched: a line may come in two pieces.
		if !l.found && strings.Contains(l.text.String(), mark) {
			l.found = true
			close(l.ready)
		}
	}
	return len(b), nil
}

// tail returns the last lines.
func (l *log) tail() string {
	const lines = 20
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.text.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
