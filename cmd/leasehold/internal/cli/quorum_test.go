//go:build linux || darwin

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// startQuorum starts three servers with a password, and returns them and their URL as one store.
func startQuorum(t *testing.T) (servers []*redistest.Server, url string) {
	t.Helper()
	var hosts []string
	for range 3 {
		s := redistest.Start(t, "--requirepass", "s3:c@ret")
		servers, hosts = append(servers, s), append(hosts, s.Addr())
	}
	return servers, "quorum+redis://:s3%3Ac%40ret@" + strings.Join(hosts, ",") + "/1?prefix=q:&max-ttl=10m&client-name=x"
}

// TestStories_OnAQuorum runs the stories for a store of three servers. The command
// lose N kills server N.
func TestStories_OnAQuorum(t *testing.T) {
	servers, url := startQuorum(t)
	params := storyParams(func(*testscript.Env) string { return url })
	params.Dir, params.Deadline = "testdata/quorum", time.Now().Add(5*time.Minute)
	params.Cmds["lose"] = func(ts *testscript.TestScript, neg bool, args []string) {
		n, err := strconv.Atoi(strings.Join(args, " "))
		if neg || err != nil || n < 1 || n > len(servers) {
			ts.Fatalf("usage: lose N, a server from 1 to %d", len(servers))
		}
		servers[n-1].Kill()
	}
	testscript.Run(t, params)
}

// TestRun_NestedOnAQuorumGoesOnWithOneNodeSilent: one node is silent when the outer run
// begins, and a different one when the inner run begins, so the nodes count different tokens.
// The outer lease is not lost, and the inner command has its token.
func TestRun_NestedOnAQuorumGoesOnWithOneNodeSilent(t *testing.T) {
	live.Test(t)
	t.Parallel()
	servers, url := startQuorum(t)
	if out, code := run(t, "run", "--store", url, "warm", "true"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	first, second := servers[0].Pid(), servers[1].Pid()
	t.Cleanup(servers[0].Cont)
	t.Cleanup(servers[1].Cont)
	servers[0].Stop()
	script := fmt.Sprintf(`echo $LEASEHOLD_TOKEN; kill -CONT %d; kill -STOP %d; %s run -w 30 demo printenv LEASEHOLD_TOKEN`, first, second, command(t))
	c := exec.CommandContext(t.Context(), command(t), "run", "--pass-store", "--store", url, "--ttl", "2m", "demo", "sh", "-c", script)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if tokens := strings.Fields(string(out)); err != nil || len(tokens) != 2 || tokens[0] != tokens[1] {
		t.Errorf("the commands have tokens %v: %v", tokens, err)
	}
}
