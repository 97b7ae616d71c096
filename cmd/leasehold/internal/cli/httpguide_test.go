//go:build linux || darwin

package cli_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

const httpGuide = "../../../../docs/http.md"

// service is a process of `leasehold serve`.
type service struct {
	url     string
	process *os.Process
}

// startService starts a service on a free port. The end of the test stops it.
func startService(t *testing.T, args ...string) *service {
	t.Helper()
	p := launch(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT) // a test may have stopped it
		_ = p.Process.Signal(syscall.SIGTERM)
		p.wantCode(0)
	})
	return &service{p.serves(), p.Process}
}

// need fails the test if a program that the examples need is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: the client examples need it; `make deps` installs it on Debian", err)
		}
	}
}

// withClients returns a directory with the clients of other languages.
func withClients(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../../examples/clients")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGuideHTTP_EverySnippetDoesWhatItShows runs the examples of docs/http.md, and the one in Python
// of README.md, on a new service, without the configurations of proxies.
func TestGuideHTTP_EverySnippetDoesWhatItShows(t *testing.T) {
	live.Test(t)
	need(t, "curl", "python3", "node")
	blocks, readme := snippets(t, httpGuide), snippets(t, "../../../../README.md")
	if languages := slices.Sorted(maps.Keys(blocks)); !slices.Equal(languages, []string{"apache", "console", "json", "nginx", "sh"}) {
		t.Fatalf("blocks of %q", languages)
	}
	s := startService(t, "--store", "file://"+t.TempDir(), "--operation", "50ms")
	run := func(t *testing.T, block, dir string) {
		t.Helper()
		block = strings.ReplaceAll(block, "http://127.0.0.1:8080", s.url)
		checkBlock(t, block, dir, "PATH="+dir+":"+filepath.Dir(command(t))+":"+os.Getenv("PATH"), "LEASEHOLD_URL="+s.url)
	}
	for i, block := range blocks["console"] {
		t.Run(fmt.Sprint("console ", i+1), func(t *testing.T) { run(t, block, withClients(t)) })
	}
	packages, err := filepath.Abs("../../../../clients/python/src")
	if err != nil {
		t.Fatal(err)
	}
	if len(readme["python"]) == 0 {
		t.Error("README.md has no block in Python")
	}
	for _, block := range readme["python"] {
		dir := t.TempDir()
		block = strings.ReplaceAll(block, "http://127.0.0.1:8080", s.url)
		if err := os.WriteFile(filepath.Join(dir, "snippet.py"), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, "$ PYTHONPATH="+packages+" python3 snippet.py\norders/42 is mine, token …\n", dir)
	}
}

func TestGuideHTTP_CommandsAndFilesAreUnderstood(t *testing.T) {
	blocks := snippets(t, httpGuide)
	for line := range strings.Lines(strings.Join(blocks["sh"], "")) {
		line, _, _ = strings.Cut(line, "#")
		args := strings.Fields(line)
		if out, code := run(t, append(args[1:], "--help")...); args[0] != "leasehold" || code != 0 {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
	}
	for _, text := range blocks["json"] {
		path := filepath.Join(t.TempDir(), "auth.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.OpenFile(path); err != nil {
			t.Error(err)
		}
	}
}

func TestGuideHTTP_EveryCauseIsDocumentedAndNoOther(t *testing.T) {
	text, err := os.ReadFile(httpGuide)
	if err != nil {
		t.Fatal(err)
	}
	_, errs, _ := strings.Cut(string(text), "\n## Errors\n")
	var want strings.Builder
	for _, c := range server.Causes() {
		fmt.Fprintf(&want, "\n### %s\n\n%d. %s. %s\n", c.Name, c.Status, c.Title, c.Meaning)
	}
	_, got, _ := strings.Cut(errs, "\n###")
	if got = "\n###" + got; got != want.String() {
		t.Errorf("the causes are not documented as:\n%s", want.String())
	}
}

// TestGuideHTTP_FlagsExist checks that the flags in the guide exist.
func TestGuideHTTP_FlagsExist(t *testing.T) {
	text, err := os.ReadFile(httpGuide)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := run(t, "serve", "--help")
	flags := regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(string(text), -1)
	if len(flags) < 8 {
		t.Errorf("%d flags found", len(flags))
	}
	for _, flag := range flags {
		if !strings.Contains(out, flag[1]+" ") {
			t.Errorf("%s is no flag of serve", flag[1])
		}
	}
}
