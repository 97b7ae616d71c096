//go:build linux || darwin

package cli_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
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

// readmes are how the README of a package is run: a text before its blocks, and one that uses the
// client of the block with the token.
var readmes = map[string]struct{ language, begin, secured, program string }{
	"python": {"python", `import sys; sys.path.insert(0, "src")
class Done:
    def __await__(self): return iter(())
charge = confirm = report = lambda *a, **b: Done()
order = 1
`, `client.try_lock("readme").release()`, `import ast, asyncio, sys
asyncio.run(eval(compile(sys.stdin.read(), "README", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {}))`},
	"node": {"js", `const order = 1, charge = async () => {}, confirm = charge;
`, `await secured.with("readme", charge);`, ""},
}

// TestClientPackages_ReadmesRun runs the blocks of each README as one program, on a service, and
// on one that asks for a token and a certificate.
func TestClientPackages_ReadmesRun(t *testing.T) {
	live.Test(t)
	t.Parallel()
	need(t, "python3", "node")
	certs := redistest.StartTLS(t, true).Certificates()
	auth := filepath.Join(t.TempDir(), "auth.json")
	text := fmt.Sprintf(`{"principals":[{"name":"app","tokens":["sha256:%x"],"rights":[{"verbs":["acquire"],"prefix":"readme"}]}]}`, sha256.Sum256([]byte("secret")))
	if err := os.WriteFile(auth, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	secured := startService(t, "--store", "memory:", "--auth-file", auth, "--tls-cert", certs.ServerCert, "--tls-key", certs.ServerKey, "--tls-client-ca", certs.CA)
	for name, r := range readmes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := "../../../../clients/" + name
			program := r.begin
			for _, block := range snippets(t, dir+"/README.md")[r.language] {
				program += block
				if strings.Contains(block, "https://") {
					program += r.secured + "\n"
				}
			}
			program = strings.NewReplacer(`from "leasehold"`, `from "./index.mjs"`, "http://127.0.0.1:8080", startService(t, "--store", "memory:").url,
				"https://locks.example.com", secured.url, "ca.pem", certs.CA, "client.pem", certs.ClientCert, "client.key", certs.ClientKey).Replace(program)
			cmd := exec.CommandContext(t.Context(), "python3", "-X", "dev", "-W", "error", "-c", r.program)
			if name == "node" {
				cmd = exec.CommandContext(t.Context(), "node", "--input-type=module", "-")
			}
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(program)
			cmd.Env = append(os.Environ(), "LEASEHOLD_BEARER=secret", "NODE_EXTRA_CA_CERTS="+certs.CA, "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(program, r.secured) {
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
