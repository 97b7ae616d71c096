//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// arena is one lock, in Redis and behind a service, and a file in which each
// holder records the begin and the end of its visit.
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

// visit is the script of a holder: it records its token, sleeps, and records its end.
const visit = `echo "$0 in $LEASEHOLD_TOKEN" >>visits; sleep 0.01; echo "$0 out" >>visits`

// parties returns the ways to take the lock, each as a function that returns after its
// visit.
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

// visit runs the script of a holder under a lease of the library.
func (a *arena) visit(c *leasehold.Client, name string) error {
	return leasehold.Do(a.t.Context(), c.Mutex(contested), func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		cmd := exec.CommandContext(ctx, "sh", "-c", visit, name)
		cmd.Dir = a.dir
		cmd.Env = append(os.Environ(), fmt.Sprintf("LEASEHOLD_TOKEN=%d", lease.Token()))
		return cmd.Run()
	})
}

// queue waits until the lock has n waiters.
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
			a.t.Fatalf("%d waiters, want %d: %+v", len(snap.Waiters), n, snap)
		}
	}
}

// visits returns the names of the visitors in order, and checks that no two visits
// overlapped and that tokens rose. lost counts the visits without a recorded end.
func (a *arena) visits(lost map[string]int) (order []string) {
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
			if lost[inside] > 0 {
				lost[inside]--
				inside = ""
			}
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

// inTurn queues the parties one after the other behind a holder, and returns an error if they
// were not served in the order of their arrival.
func (a *arena) inTurn(kinds []string, parties map[string]func(name string) error) error {
	a.t.Helper()
	holder, err := a.direct.Mutex(contested).Lock(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	v := visitors{lost: make(map[string]int)}
	var came []string
	for i, kind := range kinds {
		came = append(came, v.come(kind, parties[kind]))
		a.queue(i + 1)
	}
	if err := holder.Release(); err != nil {
		a.t.Fatal(err)
	}
	served, err := v.all(a)
	if !slices.Equal(served, came) {
		err = errors.Join(err, fmt.Errorf("served %q, they came as %q", served, came))
	}
	return err
}

// atOnce starts n of each party at once, and returns an error if one was not served.
func (a *arena) atOnce(n int, parties map[string]func(name string) error) error {
	a.t.Helper()
	v := visitors{lost: make(map[string]int)}
	for kind, party := range parties {
		for range n {
			v.come(kind, party)
		}
	}
	served, err := v.all(a)
	if len(served) != n*len(parties) {
		err = errors.Join(err, fmt.Errorf("%d visits: %q", len(served), served))
	}
	return err
}

// visitors are the running parties.
type visitors struct {
	under sync.WaitGroup
	mu    sync.Mutex
	lost  map[string]int // how many of a name have failed
	err   error
}

// come starts a party, and returns the name of its visit.
func (v *visitors) come(kind string, party func(name string) error) string {
	name := strings.ReplaceAll(kind, " ", "-")
	v.under.Go(func() {
		if err := party(name); err != nil {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.lost[name]++
			v.err = errors.Join(v.err, fmt.Errorf("%s: %w", kind, err))
		}
	})
	return name
}

// all waits for all parties, and returns the order of their visits, and their errors.
func (v *visitors) all(a *arena) ([]string, error) {
	a.t.Helper()
	v.under.Wait()
	return a.visits(v.lost), v.err
}

// TestClients_OfEveryLanguageStandInOneQueue: Python, Node and a shell script
// over HTTP, the library and the command over HTTP and on Redis contend for one
// lock. They are served in the order of their arrival, and exclude each other.
func TestClients_OfEveryLanguageStandInOneQueue(t *testing.T) {
	live.Test(t)
	t.Parallel()
	a := newArena(t)
	parties := a.parties()
	kinds := make([]string, 0, len(parties))
	for kind := range parties {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	// A party must confirm a hand-over within a second.
	play := func(what string, round func() error) {
		if err := round(); err != nil {
			live.Late(t, "%s: %v", what, err)
		}
	}
	play("one after the other", func() error { return a.inTurn(kinds, parties) })
	slices.Reverse(kinds)
	play("the other way round", func() error { return a.inTurn(kinds, parties) })
	play("several of each at once", func() error { return a.atOnce(3, parties) })
}

// TestClients_KillTheCommandWhenTheLeaseIsBroken: the next renewal returns the loss.
func TestClients_KillTheCommandWhenTheLeaseIsBroken(t *testing.T) {
	live.Test(t)
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

// TestClients_PassASignalOnAndKeepTheLock: a command that ends slowly after the signal
// still ends under the lock.
func TestClients_PassASignalOnAndKeepTheLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	a := newArena(t)
	for name, program := range map[string][]string{
		"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"./lock.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const slow = `trap 'sleep 1; echo ended; exit 7' TERM; echo started; while :; do sleep 0.1; done`
			cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], name, "sh", "-c", slow)...)
			cmd.Dir = a.dir
			cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+a.service.url)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := out.(*os.File).SetReadDeadline(time.Now().Add(bound)); err != nil { // the command may outlive the client
				t.Fatal(err)
			}
			expect(t, out, "started")
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			expect(t, out, "ended")
			// The client ends after the command, and returns its code.
			err = cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Errorf("%v, want code 7", err)
			}
		})
	}
}

// breakHolder waits until the lock has a holder, and breaks its lease.
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

// TestClients_BeginNothingUnderALeaseThatIsOver: the grant arrives so late that the lease
// has ended. The clients renew it before they begin, and the renewal returns the loss.
func TestClients_BeginNothingUnderALeaseThatIsOver(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	const problem = `{"type":"https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#lease-lost","status":410}`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ LeaseID string }
		if r.URL.Path != "/v1/locks" {
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, problem)
		} else if err := json.NewDecoder(r.Body).Decode(&body); err == nil {
			time.Sleep(500 * time.Millisecond) // more than a third of the lease
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"leaseId":%q,"token":7}`, body.LeaseID)
		}
	}))
	t.Cleanup(service.Close)
	for name, args := range map[string][]string{
		"python": {"python3", "-c", `
import os, lock
try:
    with lock.Lock(os.environ["LEASEHOLD_URL"], "k", ttl=1):
        print("inside")
except lock.Lost:
    print("lost")
`},
		"node": {"node", "--input-type=module", "-e", `
import { acquire, Lost } from "./lock.mjs";
await acquire(process.env.LEASEHOLD_URL, "k", { ttl: 1000 }).then(
	() => console.log("inside"),
	(error) => console.log(error instanceof Lost ? "lost" : error),
);
`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Dir = withClients(t)
			cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+service.URL)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "lost\n" {
				t.Errorf("%v, %q, want the loss", err, out)
			}
		})
	}
}

// TestClients_NodeRenewsNothingAfterARelease releases a lease during a renewal.
func TestClients_NodeRenewsNothingAfterARelease(t *testing.T) {
	live.Test(t)
	t.Parallel()
	renewing, released := make(chan struct{}), make(chan struct{})
	var late atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ LeaseID string }
		switch r.URL.Path {
		case "/v1/locks", "/v1/leases", "/v1/leases:release":
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			switch r.URL.Path {
			case "/v1/leases":
				select {
				case <-released:
					late.Add(1)
					w.WriteHeader(http.StatusGone)
					return
				default:
					close(renewing)
					time.Sleep(100 * time.Millisecond) // the client sends the release before this answer; if it is late, the test cannot fail
				}
			case "/v1/leases:release":
				time.Sleep(200 * time.Millisecond) // the renewal is answered before the release
				close(released)
			}
			fmt.Fprintf(w, `{"leaseId":%q,"token":7}`, body.LeaseID)
		default:
			<-renewing
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(service.Close)
	cmd := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", `
import { acquire } from "./lock.mjs";
const lease = await acquire(process.env.LEASEHOLD_URL, "k", { ttl: 6000 });
await fetch(process.env.LEASEHOLD_URL); // answered when a renewal is under way
await lease.release();
console.log("released");
`)
	cmd.Dir = withClients(t)
	cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+service.URL)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "released\n" || late.Load() > 0 {
		t.Errorf("%v, %q, and %d renewals after the release", err, out, late.Load())
	}
}

// TestClients_SayWhyTheServiceCannotBeUsed: a certificate that is not trusted, and a proxy that
// changes names.
func TestClients_SayWhyTheServiceCannotBeUsed(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "curl", "python3", "node")
	dir := withClients(t)
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	var released sync.Map
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ LeaseID string }
		if err := json.NewDecoder(r.Body).Decode(&body); err == nil {
			if released.LoadOrStore(body.LeaseID, false); r.URL.Path == "/v1/leases:release" {
				released.Store(body.LeaseID, true)
			}
			fmt.Fprintf(w, `{"key":"data","leaseId":%q,"state":"held","token":7}`, body.LeaseID)
		}
	}))
	t.Cleanup(proxy.Close)
	for name, program := range map[string][]string{
		"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"./lock.sh"},
	} {
		for url, want := range map[string]string{stranger.URL: "certificate", proxy.URL: "a proxy changes the request"} {
			cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], "./data", "echo", "begun")...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "LEASEHOLD_URL="+url)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 69 || !strings.Contains(string(out), url) || !strings.Contains(string(out), want) || strings.Contains(string(out), "begun") {
				t.Errorf("%s on %s: %v, want code 69 and %q\n%s", name, url, err, want, out)
			}
		}
	}
	released.Range(func(id, ended any) bool {
		if ended != true {
			t.Errorf("the lease %v of the other lock was not released", id)
		}
		return true
	})
}

// TestClients_KeepNamesBehindAProxyThatCleansPaths: the locks with the cleaned names are held,
// so that a client cannot get its lock if the proxy changes the name.
func TestClients_KeepNamesBehindAProxyThatCleansPaths(t *testing.T) {
	live.Test(t)
	t.Parallel()
	a := newArena(t)
	service, err := url.Parse(a.service.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(service)
		r.Out.URL.Path, r.Out.URL.RawPath = path.Clean(r.In.URL.Path), ""
	}})
	t.Cleanup(proxy.Close)
	for _, name := range []string{"data", "b", "a/b"} {
		lease, err := a.direct.Mutex(name).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release() //nolint:errcheck // the test is over
	}
	for kind, program := range map[string][]string{
		"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"./lock.sh"},
		"command": {command(t), "run", "-q"},
	} {
		for _, name := range []string{".", "..", "./data", "a/../b", "a//b", "a%2Fb", "/", `"\&`} {
			cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], name, "sh", "-c", `test "$LEASEHOLD_TOKEN" -gt 0`)...)
			cmd.Dir, cmd.Env = a.dir, append(os.Environ(), "LEASEHOLD_URL="+proxy.URL, "LEASEHOLD_STORE="+proxy.URL)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s, %q: %v\n%s", kind, name, err, out)
			}
			if snap, err := a.direct.Inspect(t.Context(), name); err != nil || len(snap.Holders) > 0 {
				t.Errorf("%s left %q behind: %+v, %v", kind, name, snap, err)
			}
		}
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
