package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// TestRun_AFullPipeStopsNoRenewals: a pager does not read the output while it waits for a
// key.
func TestRun_AFullPipeStopsNoRenewals(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	unread, stderr := pipe(t)
	fill(t, stderr)
	const ttl = 20 * time.Second
	r := startRunSaying(t, stderr, "redis://"+proxy.Addr()+"?timeout=500ms", "--ttl", ttl.String(), "--grace", "100ms", "demo",
		"sh", "-c", begin+ready+"read line; exit 5")
	first := r.deadline()
	client := newClient(t, server.URL())
	await := func(done func(left time.Duration) bool) {
		t.Helper()
		awaitLock(t, client, "demo", func(s leasehold.Snapshot) bool {
			if !isHeld(s) {
				t.Fatalf("not held: %+v", s)
			}
			return done(s.Holders[0].Remaining)
		})
	}
	proxy.Mute()
	await(func(left time.Duration) bool { return left < ttl/2 }) // an outage
	proxy.Unmute()
	await(func(left time.Duration) bool { return left > ttl/2 })               // a renewal
	await(func(time.Duration) bool { return time.Since(first) > time.Second }) // the end of the first lease
	r.stdin.Close()
	said := new(output)
	go func() { _, _ = unread.WriteTo(said) }() // run writes the messages before it ends
	r.wantCode(5)
	said.await(t, "the store does not answer: ")
	said.await(t, "the store answers again after ")
}

// TestRun_AFullPipeKeepsNoLock: a message before the command, or one about an audit log that
// cannot be written during the release, is not read before the lock is free again.
func TestRun_AFullPipeKeepsNoLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "trails")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for says, args := range map[string][]string{
		`"event":"acquired"`:              {"--json", "demo", "true"},
		"the audit log cannot be written": {"-q", "--audit-log", filepath.Join(dir, "log"), "demo", "rm", "-r", dir},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			unread, stderr := pipe(t)
			fill(t, stderr)
			args := append([]string{"run", "--ttl", "10m", "--store", server.URL()}, args...)
			p := launch(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, args...)
			awaitLock(t, newClient(t, server.URL()), "demo", func(s leasehold.Snapshot) bool {
				return len(s.Holders) == 0 && server.Client().DBSize(t.Context()).Val() > 0 // the counter of the tokens
			})
			said := new(output)
			go func() { _, _ = unread.WriteTo(said) }() // run writes the message at its end
			p.wantCode(0)
			said.await(t, says)
		})
	}
}

// TestElect_P4_EachTermHasATokenOfItsOwn: the command of a term is ended before the lease
// is over. Its requests may arrive during the next term, and must then be refused.
func TestElect_P4_EachTermHasATokenOfItsOwn(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	for _, flags := range [][]string{{}, {"--owner", "scheduler"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			proxy := respproxy.Start(t, server.Addr())
			args := append([]string{"elect", "--ttl", "6s", "--grace", "2s", "--store", "redis://" + proxy.Addr() + "?timeout=500ms"}, flags...)
			out, stdout := pipe(t)
			p := launch(t, func(cmd *exec.Cmd) { cmd.Stdout = stdout }, append(args, t.Name(), "sh", "-c",
				`echo $LEASEHOLD_LEASE_ID $LEASEHOLD_TOKEN $LEASEHOLD_OWNER; exec sleep 600`)...)
			if err := out.SetReadDeadline(time.Now().Add(bound)); err != nil {
				t.Fatal(err)
			}
			term := func() (lease, owner string, token int64) {
				t.Helper()
				if _, err := fmt.Fscanln(out, &lease, &token, &owner); err != nil {
					t.Fatalf("no term: %v; it printed %s", err, p.said)
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

// fill writes to a pipe until it is full.
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
			p := launch(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "LEASEHOLD_STORE="+server.URL()) }, row.args...)
			p.awaitSaid("the store does not answer: ")
			server.Restart()
			p.wantCode(row.code)
			p.wantSaid("the store answers again after ")
		})
	}
}
