//go:build unix

package locktest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// arena runs the processes of a play and listens to them.
type arena struct {
	t    *testing.T
	name string
	play processPlay
	url  string

	witness Witness
	wg      sync.WaitGroup

	mu    sync.Mutex
	chief *exec.Cmd      // who spoke last
	did   map[string]int // outcomes of acts
}

// run plays for the given time, or for longer until enough has happened on a busy
// machine; then it judges, and reports.
func (a *arena) run(lasting time.Duration) {
	a.t.Helper()
	a.did = make(map[string]int)
	var running []*process
	for range a.play.processes {
		running = append(running, a.spawn())
	}
	kills, stops := 0, 0
	began := time.Now()
	for time.Since(began) < lasting || time.Since(began) < max(8*lasting, 2*patience) && !a.enough(kills) {
		time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		i := a.victim(running)
		switch {
		case a.play.quiet || i < 0:
		case (kills+stops)%3 == 2:
			stops++
			running[i].signal(syscall.SIGSTOP)
			time.Sleep(processLife + rand.N(processLife))
			running[i].signal(syscall.SIGCONT)
		default:
			kills++
			running[i].signal(syscall.SIGKILL)
			running[i] = a.spawn()
		}
	}
	for _, p := range running {
		_ = p.stdin.Close()
	}
	a.wg.Wait()
	a.judge(kills, stops)
}

// victim is the process that spoke last, which most likely holds a lock at this
// moment, or none.
func (a *arena) victim(running []*process) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.IndexFunc(running, func(p *process) bool { return p.cmd == a.chief })
}

// enough reports whether so much has happened that the play tells something.
func (a *arena) enough(kills int) bool {
	return a.witness.granted() >= 10 && (a.play.quiet || kills > 0)
}

// judge holds what was said against the promises.
func (a *arena) judge(kills, stops int) {
	a.t.Helper()
	wrong := a.witness.Judge()
	for _, w := range wrong[:min(len(wrong), 20)] {
		a.t.Error(w)
	}
	enough, grants, acts := a.enough(kills), a.witness.granted(), 0
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.did {
		acts += n
	}
	a.t.Logf("%d acts, %d grants, %d processes killed, %d stopped, %d violations", acts, grants, kills, stops, len(wrong))
	a.t.Logf("outcomes: %v", a.did)
	a.t.Logf("grants by key: %v", a.witness.Grants())
	if !enough {
		a.t.Errorf("too little happened: %d grants, %d kills", grants, kills)
	}
}

type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func (a *arena) spawn() *process {
	a.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), storeEnv+"="+a.url, playEnv+"="+a.name)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = cmd.Process.Kill() })
	a.wg.Go(func() {
		a.listen(cmd, stdout)
		_ = cmd.Wait() // most of them are killed
		if complaints.Len() > 0 {
			a.t.Errorf("a contender says: %s", complaints.String())
		}
	})
	return &process{cmd, stdin}
}

// listen notes what a process says. A line that was cut off by its death is
// dropped.
func (a *arena) listen(cmd *exec.Cmd, from io.Reader) {
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if err := a.hear(cmd, strings.TrimSuffix(line, "\n")); err != nil {
			a.t.Errorf("a contender says %q: %v", line, err)
		}
	}
}

func (a *arena) hear(cmd *exec.Cmd, line string) error {
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "saw":
		s, err := ParseSighting(rest)
		if err != nil {
			return err
		}
		a.witness.See(s)
		a.mu.Lock()
		a.chief = cmd
		a.mu.Unlock()
		return nil
	case "did":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.did[rest]++
		return nil
	}
	return errors.New("what?")
}

// nothingLeft waits until every key has ended by itself.
func (a *arena) nothingLeft(d driver.Driver) {
	a.t.Helper()
	defer d.Close()
	var keys []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var err error
		if keys, _, err = d.(driver.Inspector).List(context.Background(), "", ""); err == nil && len(keys) == 0 {
			return
		}
	}
	a.t.Errorf("left behind: %q", keys)
}
