//go:build linux || darwin

package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
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

// clients are the programs of examples/clients.
var clients = map[string][]string{"python": {"python3", "lock.py"}, "node": {"node", "lock.mjs"}, "shell": {"./lock.sh"}}

// client returns a program, in the directory of the clients, that uses a service.
func client(t *testing.T, dir, url string, program []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program[0], slices.Concat(program[1:], args)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+url, "LEASEHOLD_STORE="+url)
	return cmd
}

// eachClient plays a test with each of the clients at once.
func eachClient(t *testing.T, test func(t *testing.T, name string, program []string)) {
	for name, program := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, program)
		})
	}
}

// fakeService returns the URL of a service that answers requests by answer. lease is the id in the
// request, if it has one.
func fakeService(t *testing.T, answer func(w http.ResponseWriter, path, lease string)) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ LeaseID string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		answer(w, r.URL.Path, body.LeaseID)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// ended answers that a lease has ended.
func ended(w http.ResponseWriter, cause string) {
	w.WriteHeader(http.StatusGone)
	fmt.Fprintf(w, `{"type":"https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#%s","status":410}`, cause)
}

func newArena(t *testing.T) *arena {
	t.Helper()
	need(t, "curl", "python3", "node")
	a := &arena{t: t, dir: withClients(t), redis: redistest.Start(t).URL()}
	a.service = startService(t, "--store", a.redis)
	a.direct, a.remote = newClient(t, a.redis), newClient(t, a.service.url)
	return a
}

// visit is the script of a holder: it records its token, sleeps, and records its end.
const visit = `echo "$0 in $LEASEHOLD_TOKEN" >>visits; sleep 0.01; echo "$0 out" >>visits`

// parties returns the ways to take the lock, each as a function that returns after its
// visit.
func (a *arena) parties() map[string]func(name string) error {
	under := func(program ...string) func(string) error {
		return func(name string) error {
			cmd := client(a.t, a.dir, a.service.url, program, "sh", "-c", visit, name)
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
		awaitLock(a.t, a.direct, contested, hasWaiters(i+1))
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
	eachClient(t, func(t *testing.T, name string, program []string) {
		p := start(t, client(t, a.dir, a.service.url, program, name, "sleep", "300"), nil)
		breakLock(t, a.direct, name, "a test")
		p.wantCode(79)
	})
}

// TestClients_PassASignalOnAndKeepTheLock: a command that ends slowly after the signal
// still ends under the lock.
func TestClients_PassASignalOnAndKeepTheLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	a := newArena(t)
	eachClient(t, func(t *testing.T, name string, program []string) {
		const slow = `trap 'sleep 1; echo ended; exit 7' TERM; echo started; while :; do sleep 0.1; done`
		cmd := client(t, a.dir, a.service.url, program, name, "sh", "-c", slow)
		p := start(t, cmd, func(cmd *exec.Cmd) { cmd.Stdout = cmd.Stderr })
		p.awaitSaid("started\n")
		p.signal(syscall.SIGTERM)
		p.wantCode(7) // the client ends after the command, and returns its code
		p.wantSaid("ended\n")
	})
}

// TestClients_BeginNothingUnderALeaseThatIsOver: the grant arrives so late that the lease
// has ended. The clients renew it before they begin, and the renewal returns the loss.
func TestClients_BeginNothingUnderALeaseThatIsOver(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	service := fakeService(t, func(w http.ResponseWriter, path, lease string) {
		if path != "/v1/locks" {
			ended(w, "lease-lost")
			return
		}
		time.Sleep(500 * time.Millisecond) // more than a third of the lease
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"leaseId":%q,"token":7}`, lease)
	})
	for name, program := range map[string][]string{
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
			if out, err := client(t, withClients(t), service, program).CombinedOutput(); err != nil || string(out) != "lost\n" {
				t.Errorf("%v, %q, want the loss", err, out)
			}
		})
	}
}

func TestClients_ReportALeaseThatWasBrokenBeforeItsAnswerAsLost(t *testing.T) {
	live.Test(t)
	t.Parallel()
	service := fakeService(t, func(w http.ResponseWriter, _, _ string) { ended(w, "broken") })
	eachClient(t, func(t *testing.T, name string, program []string) {
		start(t, client(t, withClients(t), service, program, name, "true"), nil).wantCode(79)
	})
}

// TestClients_NodeRenewsNothingAfterARelease releases a lease during a renewal.
func TestClients_NodeRenewsNothingAfterARelease(t *testing.T) {
	live.Test(t)
	t.Parallel()
	renewing, released := make(chan struct{}), make(chan struct{})
	var late atomic.Int64
	service := fakeService(t, func(w http.ResponseWriter, path, lease string) {
		switch path {
		case "/v1/locks":
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
		default:
			<-renewing
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"leaseId":%q,"token":7}`, lease)
	})
	cmd := client(t, withClients(t), service, []string{"node", "--input-type=module", "-e"}, `
import { acquire } from "./lock.mjs";
const lease = await acquire(process.env.LEASEHOLD_URL, "k", { ttl: 6000 });
await fetch(process.env.LEASEHOLD_URL); // answered when a renewal is under way
await lease.release();
console.log("released");
`)
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
	proxy := fakeService(t, func(w http.ResponseWriter, path, lease string) {
		if lease == "" {
			return
		}
		if released.LoadOrStore(lease, false); path == "/v1/leases:release" {
			released.Store(lease, true)
		}
		fmt.Fprintf(w, `{"key":"data","leaseId":%q,"state":"held","token":7}`, lease)
	})
	for name, program := range clients {
		for url, want := range map[string]string{stranger.URL: "certificate", proxy: "a proxy changes the request"} {
			out, err := client(t, dir, url, program, "./data", "echo", "begun").CombinedOutput()
			text := string(out)
			if exitCode(t, err) != 69 || !strings.Contains(text, url) || !strings.Contains(text, want) || strings.Contains(text, "begun") {
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
	programs := maps.Clone(clients)
	programs["command"] = []string{command(t), "run", "-q"}
	for kind, program := range programs {
		for _, name := range []string{".", "..", "./data", "a/../b", "a//b", "a%2Fb", "/", `"\&`} {
			cmd := client(t, a.dir, proxy.URL, program, name, "sh", "-c", `test "$LEASEHOLD_TOKEN" -gt 0`)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s, %q: %v\n%s", kind, name, err, out)
			}
			wantFree(t, a.direct, name)
		}
	}
}
