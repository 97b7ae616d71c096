//go:build linux || darwin

package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// The packages for other languages have their own tests, which need a service that
// they can stop and continue.
func TestClientPackages_PassTheirTests(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	for name, program := range map[string][]string{
		"python": {"python3", "-X", "dev", "-W", "error", "-m", "unittest", "tests/test_leasehold.py", "tests/test_transport.py"},
		"node":   {"node", "--test", "test/leasehold.test.mjs", "test/transport.test.mjs"},
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

// npm and setuptools pack the license only if it is a regular file in the directory of the
// package, and not a link.
func TestClientPackages_CarryTheLicense(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"python", "node"} {
		file := "../../../../clients/" + name + "/LICENSE"
		info, err := os.Lstat(file)
		if err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is not a file that is packed: %v", file, err)
		} else if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not the license of the repository: %v", file, err)
		}
	}
}
