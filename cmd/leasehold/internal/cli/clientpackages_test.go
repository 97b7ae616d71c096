//go:build linux || darwin

package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// The packages for other languages have tests of their own, which want a service that
// they can stop and continue.
func TestClientPackages_PassTheirTests(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	for _, name := range []string{"python", "node"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t, "--store", "file:"+t.TempDir())
			if out, err := packageTests(t, name, s.url, strconv.Itoa(s.process.Pid)); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// packageTests runs the tests of the package for a language, as its README says.
func packageTests(t *testing.T, name, url, pid string) (string, error) {
	t.Helper()
	program := map[string][]string{
		"python": {"python3", "-X", "dev", "-W", "error", "-m", "unittest", "tests/test_leasehold.py"},
		"node":   {"node", "--test", "test/"},
	}[name]
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Dir = "../../../../clients/" + name
	cmd.Env = append(os.Environ(), "LEASEHOLD_URL="+url, "LEASEHOLD_PID="+pid, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// npm and setuptools pack the license that lies beside the package's own file, and no link
// to one elsewhere.
func TestClientPackages_CarryTheLicense(t *testing.T) {
	live.Test(t)
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

func TestClientPackages_TestsSayThatTheyNeedAService(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	for _, name := range []string{"python", "node"} {
		out, err := packageTests(t, name, "", "")
		if err == nil || !strings.Contains(out, "set LEASEHOLD_URL to its address and LEASEHOLD_PID to its process") || strings.Contains(out, "Traceback") || strings.Contains(out, "TypeError") {
			t.Errorf("the tests for %s without a service: %v\n%s", name, err, out)
		}
	}
}
