//go:build linux || darwin

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// The packages for other languages have tests of their own, which want a service that
// they can stop and continue. They wait most of the time, so each part of them has a service.
func TestClientPackages_PassTheirTests(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	for _, name := range []string{"python", "node"} {
		for i, choice := range packageParts(t, name) {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				t.Parallel()
				s := startService(t, "--store", "file:"+t.TempDir())
				if out, err := packageTests(t, name, s.url, strconv.Itoa(s.process.Pid), choice...); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// packageFiles are the files with the tests of a package.
var packageFiles = map[string][]string{
	"python": {"tests/test_leasehold.py", "tests/test_transport.py"},
	"node":   {"test/leasehold.test.mjs", "test/transport.test.mjs"},
}

// packageParts returns the flags that choose each part of the tests of a package. Together
// they choose all tests.
func packageParts(t *testing.T, name string) (parts [][]string) {
	t.Helper()
	const most = 6
	var declares, begins, choice string
	switch name {
	case "python":
		declares, begins, choice = `(?m)^    (?:async )?def (test_\w+)\(`, `(?m)^\s*(?:async )?def test`, "-k=*.%s"
	case "node":
		declares, begins, choice = `(?m)^test\("([^"]+)", `, `(?m)^\s*(?:test|it|describe)\(`, "--test-name-pattern=^%s$"
	}
	var text []byte
	for _, file := range packageFiles[name] {
		more, err := os.ReadFile("../../../../clients/" + name + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, more...)
	}
	tests := regexp.MustCompile(declares).FindAllSubmatch(text, -1)
	if all := regexp.MustCompile(begins).FindAll(text, -1); len(tests) < most || len(tests) != len(all) {
		t.Fatalf("%d of the %d tests for %s have a name that can be chosen", len(tests), len(all), name)
	}
	parts = make([][]string, most)
	for i, test := range tests {
		parts[i%most] = append(parts[i%most], fmt.Sprintf(choice, regexp.QuoteMeta(string(test[1]))))
	}
	return parts
}

// packageTests runs the tests of the package for a language, as its README says, or those
// that flags choose.
func packageTests(t *testing.T, name, url, pid string, flags ...string) (string, error) {
	t.Helper()
	program := map[string][]string{
		"python": {"python3", "-X", "dev", "-W", "error", "-m", "unittest"},
		"node":   {"node", "--test"},
	}[name]
	args := slices.Concat(program[1:], flags, packageFiles[name])
	cmd := exec.CommandContext(t.Context(), program[0], args...)
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
