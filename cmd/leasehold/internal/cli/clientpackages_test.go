//go:build linux || darwin

package cli_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// The packages for other languages have tests of their own, which want a service that
// they can stop and continue.
func TestClientPackages_PassTheirTests(t *testing.T) {
	t.Parallel()
	need(t, "python3", "node")
	for name, program := range map[string][]string{
		"python": {"python3", "-X", "dev", "-W", "error", "-m", "unittest", "tests/test_leasehold.py"},
		"node":   {"node", "--test", "test/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t, "--store", "file:"+t.TempDir())
			cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
			cmd.Dir = "../../../../clients/" + name
			cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+s.url, "LEASEHOLD_PID="+strconv.Itoa(s.process.Pid), "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
