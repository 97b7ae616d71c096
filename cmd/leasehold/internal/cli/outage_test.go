package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// TestRun_AFullPipeStopsNoRenewals: whoever looks at the output with a pager reads nothing
// while it waits for a key.
func TestRun_AFullPipeStopsNoRenewals(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	unread, stderr := pipe(t)
	fill(t, stderr)
	const ttl = 20 * time.Second
	r := startRunSaying(t, stderr, new(output), "redis://"+proxy.Addr()+"?timeout=500ms", "--ttl", ttl.String(), "--grace", "100ms", "demo",
		"sh", "-c", begin+ready+"read line; exit 5")
	first := r.deadline()
	client := newClient(t, server.URL())
	await := func(what string, done func(left time.Duration) bool) {
		t.Helper()
		for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
			s, err := client.Inspect(t.Context(), "demo")
			if err != nil || len(s.Holders) != 1 || time.Now().After(end) {
				t.Fatalf("%s: %v, %+v", what, err, s.Holders)
			}
			if done(s.Holders[0].Remaining) {
				return
			}
		}
	}
	proxy.Mute()
	await("outage", func(left time.Duration) bool { return left < ttl/2 })
	proxy.Unmute()
	await("renewal", func(left time.Duration) bool { return left > ttl/2 })
	await("end of the first lease", func(time.Duration) bool { return time.Since(first) > time.Second })
	r.stdin.Close()
	said := new(output)
	go func() { _, _ = unread.WriteTo(said) }() // run tells it at its end at the latest
	r.wantCode(5)
	awaitText(t, said, "the store does not answer: ")
	awaitText(t, said, "the store answers again after ")
}

// TestRun_AFullPipeKeepsNoLock: the trail cannot be written when the lease is given back,
// and nobody reads that.
func TestRun_AFullPipeKeepsNoLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "trails")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	runUnread(t, "the audit log cannot be written", "-q", "--audit-log", filepath.Join(dir, "log"), "demo", "rm", "-r", dir)
}

// TestRun_AFullPipeKeepsNoCommandFromItsLock: nobody reads what is told before the command.
func TestRun_AFullPipeKeepsNoCommandFromItsLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	runUnread(t, `"event":"acquired"`, "--json", "demo", "true")
}

// runUnread has a run say something into a pipe that is full until the lock is free again.
func runUnread(t *testing.T, says string, args ...string) {
	t.Helper()
	url := redistest.Start(t).URL()
	unread, stderr := pipe(t)
	fill(t, stderr)
	c := exec.CommandContext(t.Context(), command(t), append([]string{"run", "--ttl", "10m", "--store", url}, args...)...)
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLock(t, url, "once held and free again", func(s leasehold.Snapshot) bool { return s.Token > 0 && len(s.Holders) == 0 })
	said := new(output)
	go func() { _, _ = unread.WriteTo(said) }() // run tells it at its end
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	awaitText(t, said, says)
}

// TestElect_AFullPipeEndsNoCampaign: the candidate whose term was broken is the next
// leader, although nobody reads what it says of that.
func TestElect_AFullPipeEndsNoCampaign(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := redistest.Start(t).URL()
	_, stderr := pipe(t)
	fill(t, stderr)
	c := exec.CommandContext(t.Context(), command(t), "elect", "--ttl", "6s", "--grace", "100ms", "--store", url, "demo", "sleep", "600")
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // of the signal
	})
	leads := func(s leasehold.Snapshot) bool { return len(s.Holders) == 1 }
	first := awaitLock(t, url, "a leader", leads).Holders[0].ID
	if err := newClient(t, url).Break(t.Context(), "demo", first, "test"); err != nil {
		t.Fatal(err)
	}
	awaitLock(t, url, "the next term", func(s leasehold.Snapshot) bool { return leads(s) && s.Holders[0].ID != first })
}

// TestElect_ADirectoryThatIsAwayEndsNoCampaign: a process that was stopped has the lock of
// the directory when the next campaign begins.
func TestElect_ADirectoryThatIsAwayEndsNoCampaign(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := t.TempDir()
	client := newClient(t, "file:"+dir)
	leader := func(not string) string {
		t.Helper()
		for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if s, err := client.Inspect(t.Context(), "demo"); err == nil && len(s.Holders) == 1 && s.Holders[0].ID != not {
				return s.Holders[0].ID
			}
		}
		t.Fatal("nobody leads")
		return ""
	}
	said := new(output)
	c := exec.CommandContext(t.Context(), command(t), "elect", "--ttl", "6s", "--grace", "100ms", "--store", "file:"+dir+"?timeout=100ms", "demo", "sleep", "600")
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // of the signal
	})
	first := leader("")
	lock, err := os.Open(filepath.Join(dir, "locks", "epoch"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := client.Break(t.Context(), "demo", first, "test"); err != nil {
		t.Fatal(err)
	}
	awaitText(t, said, "file lock is taken")
	_ = lock.Close()
	leader(first)
}

// TestElect_P4_EachTermHasATokenOfItsOwn: the command of a term is ended before the lease
// is over. What it has sent may arrive during the next term, and is to be refused.
func TestElect_P4_EachTermHasATokenOfItsOwn(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	for _, flags := range [][]string{{}, {"--owner", "scheduler"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			proxy := respproxy.Start(t, server.Addr())
			args := append([]string{"elect", "--ttl", "6s", "--grace", "2s", "--store", "redis://" + proxy.Addr() + "?timeout=500ms"}, flags...)
			c := exec.CommandContext(t.Context(), command(t), append(args, t.Name(), "sh", "-c",
				`echo $LEASEHOLD_LEASE_ID $LEASEHOLD_TOKEN $LEASEHOLD_OWNER; exec sleep 600`)...)
			said := new(output)
			c.Stderr = said
			stdout, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = c.Process.Kill()
				_ = c.Wait() // of the signal
			})
			stuck := time.AfterFunc(bound, func() { _ = c.Process.Kill() })
			defer stuck.Stop()
			term := func() (lease, owner string, token int64) {
				t.Helper()
				if _, err := fmt.Fscanln(stdout, &lease, &token, &owner); err != nil {
					t.Fatalf("no term: %v; it said %s", err, said)
				}
				return lease, owner, token
			}
			lease, owner, token := term()
			proxy.Add(respproxy.DropRequest, 0, respproxy.Mentions(lease)) // neither renewed nor released
			_, nextOwner, next := term()
			if next <= token {
				t.Errorf("token %d follows %d", next, token)
			}
			if nextOwner == owner {
				t.Errorf("%s leads twice", owner)
			}
		})
	}
}

// awaitLock waits until the lock demo looks as it should.
func awaitLock(t *testing.T, url, what string, done func(leasehold.Snapshot) bool) leasehold.Snapshot {
	t.Helper()
	client := newClient(t, url)
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		s, err := client.Inspect(t.Context(), "demo")
		if err == nil && done(s) {
			return s
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%s: %v, %+v", what, err, s)
		}
	}
}

// fill writes to a pipe until it takes no more.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	block := make([]byte, 4096)
	for {
		if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(block); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunElectWait_WaitForAStoreThatIsAway(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for _, row := range []struct {
		code int
		args []string
	}{
		{5, []string{"run", "-w", "1m", "demo", "--", "sh", "-c", "exit 5"}},
		{5, []string{"elect", "demo", "--", "sh", "-c", "exit 5"}},
		{0, []string{"wait", "-w", "1m", "demo"}},
	} {
		t.Run(row.args[0], func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.Kill()
			c := exec.CommandContext(t.Context(), command(t), row.args...)
			c.Env = append(os.Environ(), "LEASEHOLD_STORE="+server.URL())
			said := new(output)
			c.Stderr = said
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			awaitText(t, said, "the store does not answer: ")
			server.Restart()
			_ = c.Wait() // the code says it
			if got := c.ProcessState.ExitCode(); got != row.code {
				t.Errorf("exit code %d, want %d: %s", got, row.code, said)
			}
			if !strings.Contains(said.String(), "the store answers again after ") {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestWait_GoesOnWhenTheStoreComesBack: a wait of minutes does not end by a restart of the
// store.
func TestWait_GoesOnWhenTheStoreComesBack(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	lease, err := newClient(t, server.URL()).Mutex("demo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	looks := proxy.Add(respproxy.Pass, 0, respproxy.Mentions("demo"))
	c := exec.CommandContext(t.Context(), command(t), "wait", "-w", "60", "--store", "redis://"+proxy.Addr()+"?timeout=500ms", "demo")
	said := new(output)
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	looks.WaitFired(t, 6) // one look may ask twice
	outage := proxy.Add(respproxy.Cut, 0, respproxy.Mentions("demo"))
	looks.Remove()
	outage.WaitFired(t, 3)
	outage.Release()
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

func TestRun_WithoutTheStoreRunsOnlyWhereThatIsWanted(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	const script = `echo "unprotected=$LEASEHOLD_UNPROTECTED key=$LEASEHOLD_KEY"; exit 7`
	for _, row := range []struct {
		flags []string
		code  int
		runs  bool
	}{
		{[]string{"--max-outage", "0"}, 69, false},
		{[]string{"--max-outage", "0", "--if-unavailable=fail"}, 69, false},
		{[]string{"--max-outage", "0", "--if-unavailable=run"}, 7, true},
		{[]string{"-n", "--if-unavailable=run"}, 7, true},
		{[]string{"--max-outage", "0", "--if-unavailable=run", "--limit", "0"}, 64, false},
		{[]string{"--if-unavailable=perhaps"}, 64, false},
	} {
		args := append([]string{"run", "--store", server.URL()}, row.flags...)
		c := exec.CommandContext(t.Context(), command(t), append(args, "demo", "sh", "-c", script)...)
		said := new(output)
		c.Stderr = said
		out, _ := c.Output() // the code says how it ended
		if got := c.ProcessState.ExitCode(); got != row.code {
			t.Errorf("%q: exit code %d, want %d: %s", row.flags, got, row.code, said)
		}
		if ran := string(out) == "unprotected=1 key=\n"; ran != row.runs {
			t.Errorf("%q: it printed %q", row.flags, out)
		}
		if loud := strings.Contains(said.String(), "WARNING") && strings.Contains(said.String(), "WITHOUT the lock"); loud != row.runs {
			t.Errorf("%q: it said %q", row.flags, said)
		}
	}
	// A lock that others hold is another thing than a store that is away.
	server.Restart()
	holder := startRun(t, server.URL(), "demo", "sh", "-c", begin+ready+"read line; exit 3")
	holder.deadline()
	c := exec.CommandContext(t.Context(), command(t), "run", "--store", server.URL(), "-n", "--if-unavailable=run", "demo", "sh", "-c", script)
	_ = c.Run() // the code says it
	if got := c.ProcessState.ExitCode(); got != 75 {
		t.Errorf("exit code %d of a lock that is held", got)
	}
	holder.stdin.Close()
	holder.wantCode(3)
}
