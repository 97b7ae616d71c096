//go:build linux || darwin

package cli_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// TestStories_OnAQuorum runs the stories of a store that is made of three
// servers, of which some are lost: lose N.
func TestStories_OnAQuorum(t *testing.T) {
	var servers []*redistest.Server
	var hosts []string
	for range 3 {
		s := redistest.Start(t)
		servers, hosts = append(servers, s), append(hosts, s.Addr())
	}
	testscript.Run(t, testscript.Params{
		Dir:      "testdata/quorum",
		Deadline: time.Now().Add(5 * time.Minute),
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEASEHOLD_STORE", "quorum+redis://"+strings.Join(hosts, ","))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", raceOptions)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "waitfor": waitfor, "waitline": waitline,
			"lose": func(ts *testscript.TestScript, neg bool, args []string) {
				n, err := strconv.Atoi(strings.Join(args, " "))
				if neg || err != nil || n < 1 || n > len(servers) {
					ts.Fatalf("usage: lose N, a server from 1 to %d", len(servers))
				}
				servers[n-1].Kill()
			},
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
