//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/redisdriver"
)

// arena is one lock, in Redis and behind a service, and a file in which whoever
// holds it writes when it enters and when it goes.
type arena struct {
	t       *testing.T
	dir     string
	redis   string
	service *service
	direct  *leasehold.Client // on Redis
	remote  *leasehold.Client // on the service
}

const contested = "orders/42 für alle"

func newArena(t *testing.T) *arena {
	t.Helper()
	need(t, "curl", "python3", "node")
	a := &arena{t: t, dir: withClients(t), redis: redistest.Start(t).URL()}
	a.service = startService(t, "--store", a.redis)
	direct, err := redisdriver.Open(a.redis)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := httpdriver.Open(a.service.url)
	if err != nil {
		t.Fatal(err)
	}
	a.direct, a.remote = a.open(direct), a.open(remote)
	return a
}

func (a *arena) open(d driver.Driver) *leasehold.Client {
	a.t.Helper()
	c, err := leasehold.New(d)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = c.Close() })
	return c
}

// visit is what a holder does: it enters with its token, stays, and goes.
const visit = `echo "$0 in $LEASEHOLD_TOKEN" >>visits; sleep 0.01; echo "$0 out" >>visits`

// parties are the ways to take the lock, each a function that returns when it
// has visited.
func (a *arena) parties() map[string]func(name string) error {
	under := func(program ...string) func(string) error {
		return func(name string) error {
			cmd := exec.CommandContext(a.t.Context(), program[0], append(program[1:], "sh", "-c", visit, name)...)
			cmd.Dir = a.dir
			cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+a.service.url)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		}
	}
	return map[string]func(string) error{
		"python":            under("python3", "lock.py", contested),
		"node":              under("node", "lock.mjs", contested),
		"shell":             under("./lock.sh", contested),
		"command on Redis":  under(command(a.t), "run", "-q", "--store", a.redis, contested),
		"command over HTTP": under(command(a.t), "run", "-q", "--store", a.service.url, contested),
		"library on Redis":  func(name string) error { return a.visit(a.direct, name) },
		"library over HTTP": func(name string) error { return a.visit(a.remote, name) },
	}
}

// visit is the same by the library.
func (a *arena) visit(c *leasehold.Client, name string) error {
	return leasehold.Do(a.t.Context(), c.Mutex(contested), func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		cmd := exec.CommandContext(ctx, "sh", "-c", visit, name)
		cmd.Dir = a.dir
		cmd.Env = append(os.Environ(), fmt.Sprintf("LEASEHOLD_TOKEN=%d", lease.Token()))
		return cmd.Run()
	})
}

// queue waits until n wait for the lock.
func (a *arena) queue(n int) {
	a.t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(10 * time.Millisecond) {
		snap, err := a.direct.Inspect(a.t.Context(), contested)
		if err != nil {
			a.t.Fatal(err)
		}
		if len(snap.Waiters) == n {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%d wait, want %d: %+v", len(snap.Waiters), n, snap)
		}
	}
}

// visits returns who visited, in order, and checks that nobody met anybody and
// that tokens rose.
func (a *arena) visits() (order []string) {
	a.t.Helper()
	path := filepath.Join(a.dir, "visits")
	text, err := os.ReadFile(path)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		a.t.Fatal(err)
	}
	last, inside := int64(0), ""
	for line := range strings.Lines(string(text)) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		var token int64
		if _, err := fmt.Sscanf(what, "in %d", &token); err == nil {
			if inside != "" || token <= last {
				a.t.Errorf("%s entered with %d after %d while %q was inside:\n%s", name, token, last, inside, text)
			}
			inside, last = name, token
			continue
		}
		if name != inside {
			a.t.Errorf("%s went while %q was inside:\n%s", name, inside, text)
		}
		order, inside = append(order, name), ""
	}
	return order
}

// TestClients_OfEveryLanguageStandInOneQueue: Python, Node and a shell script
// over HTTP, the library and the command over HTTP and on Redis contend for one
// lock. They are served in the order in which they came, and exclude each other.
func TestClients_OfEveryLanguageStandInOneQueue(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	parties := a.parties()
	kinds := make([]string, 0, len(parties))
	for kind := range parties {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for round := range 2 {
		holder, err := a.direct.Mutex(contested).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var want []string
		for i, kind := range kinds {
			name := strings.ReplaceAll(kind, " ", "-")
			want = append(want, name)
			wg.Go(func() {
				if err := parties[kind](name); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			})
			a.queue(i + 1)
		}
		if err := holder.Release(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := a.visits(); !slices.Equal(got, want) {
			t.Errorf("round %d: served %q, they came as %q", round, got, want)
		}
		slices.Reverse(kinds)
	}
	// Without an order among them, and several of each.
	const each = 3
	var wg sync.WaitGroup
	for kind, party := range parties {
		for range each {
			wg.Go(func() {
				if err := party(strings.ReplaceAll(kind, " ", "-")); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			})
		}
	}
	wg.Wait()
	if got := a.visits(); len(got) != each*len(parties) {
		t.Errorf("%d visits: %q", len(got), got)
	}
}

// TestClients_KillTheCommandWhenTheLeaseIsBroken: the next renewal tells.
func TestClients_KillTheCommandWhenTheLeaseIsBroken(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	var wg sync.WaitGroup
	for name, program := range map[string][]string{
		"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"./lock.sh"},
	} {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], name, "sleep", "300")...)
			cmd.Dir = a.dir
			cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+a.service.url)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			if !a.breakHolder(name) {
				t.Errorf("%s does not take the lock", name)
			}
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 79 {
				t.Errorf("%s: %v, want code 79\n%s", name, err, &out)
			}
		})
	}
	wg.Wait()
}

// breakHolder waits until somebody holds the lock and breaks its lease.
func (a *arena) breakHolder(key string) bool {
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		snap, err := a.direct.Inspect(a.t.Context(), key)
		if err != nil || len(snap.Holders) == 0 {
			continue
		}
		return a.direct.Break(a.t.Context(), key, snap.Holders[0].ID, "a test") == nil
	}
	return false
}

// TestClients_NoticeTheEndOfALeaseWhenTheServiceHangs: by their own clock, not
// later than the lease ends.
func TestClients_NoticeTheEndOfALeaseWhenTheServiceHangs(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	const python = `
import os, sys, time, lock
with lock.Lock(os.environ["LEASEHOLD_URL"], "python", ttl=2) as lease:
    print("held", flush=True)
    sys.stdin.readline()
    while lease.held():
        time.sleep(0.01)
    print("over", flush=True)
    os._exit(0)
`
	const node = `
import { acquire } from "./lock.mjs";
import { once } from "node:events";
const lease = await acquire(process.env.LEASEHOLD_URL, "node", { ttl: 2000 });
console.log("held");
await once(process.stdin, "data");
while (lease.held) await new Promise((done) => setTimeout(done, 10));
console.log("over");
process.exit(0);
`
	programs := map[string]*exec.Cmd{
		"python": exec.CommandContext(t.Context(), "python3", "-c", python),
		"node":   exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", node),
	}
	for name, cmd := range programs {
		t.Run(name, func(t *testing.T) {
			cmd.Dir = a.dir
			cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+a.service.url)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			expect(t, stdout, "held")
			if err := a.service.process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			stopped := time.Now()
			if _, err := stdin.Write([]byte("go\n")); err != nil {
				t.Fatal(err)
			}
			expect(t, stdout, "over")
			// What was sent before the stop was confirmed before it, too. The
			// machine may be busy; the lease of 2 s cannot be held twice over.
			if took := time.Since(stopped); took > 10*time.Second {
				t.Errorf("noticed after %v", took)
			}
			if err := a.service.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// expect reads one line.
func expect(t *testing.T, from interface{ Read([]byte) (int, error) }, want string) {
	t.Helper()
	line := make([]byte, len(want)+1)
	for n := 0; n < len(line); {
		m, err := from.Read(line[n:])
		if err != nil {
			t.Fatalf("%q, then %v; want %q", line[:n], err, want)
		}
		n += m
	}
	if string(line) != want+"\n" {
		t.Fatalf("%q, want %q", line, want)
	}
}
