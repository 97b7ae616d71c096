package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Process is a server that runs, or has run.
type Process struct {
	Cmd  *exec.Cmd
	Gone chan struct{} // closed when it has ended
	log  string
}

// Launch starts a server that writes its output to the file log. On Linux it dies with the test
// binary, even if that is killed, unless cmd has attributes of its own.
func Launch(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		dieWithParent(cmd)
	}
	p := &Process{Cmd: cmd, Gone: make(chan struct{}), log: log}
	return p, Start(cmd, p.Gone)
}

// Await waits until ready returns true. Otherwise the error has the end of the log.
func (p *Process) Await(ready func() bool) error {
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.Gone:
			return fmt.Errorf("it ended at once:\n%s", p.Log())
		default:
		}
		if time.Now().After(end) {
			p.Kill()
			return fmt.Errorf("not ready within a minute:\n%s", p.Log())
		}
	}
	return nil
}

// Kill ends the server at once, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Gone
}

// Log returns the end of the server's output.
func (p *Process) Log() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-10_000):])
}
