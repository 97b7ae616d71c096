//go:build unix

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Stop stops a process, as if its machine were frozen, and returns when all of its threads have
// stopped: after the signal alone they still run for a moment. Where there is no /proc it does not wait.
func Stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); runs(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d runs on after SIGSTOP", pid)
		}
	}
	return nil
}

// runs reports whether a thread of a process has neither stopped nor ended. The state follows the
// name of the command, which is in parentheses.
func runs(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(stats, func(path string) bool {
		text, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(text), ") ")
		return err == nil && !strings.ContainsAny(state[:min(1, len(state))], "TtZX")
	})
}

// Stop stops the server, as if its machine were frozen.
func (p *Process) Stop() error { return Stop(p.Cmd.Process.Pid) }

// Cont continues a server that was stopped.
func (p *Process) Cont() { _ = p.Cmd.Process.Signal(syscall.SIGCONT) }
