//go:build linux || darwin

package cli_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestGuide_EverySnippetDoesWhatItShows runs the console blocks of the pages for users, except
// operations.md and http.md, on servers of its own: lines after "$ " are commands, the other lines
// are the expected output, and "…" stands for any text.
func TestGuide_EverySnippetDoesWhatItShows(t *testing.T) {
	live.Test(t)
	need(t, "curl", "redis-cli", "psql")
	redis, postgres := redistest.Start(t), postgrestest.Shared(t)
	database, err := url.Parse(postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := address.Free()
	if err != nil {
		t.Fatal(err)
	}
	service := net.JoinHostPort(host, strconv.Itoa(port))
	ours := strings.NewReplacer("127.0.0.1:6379", redis.Addr(), "redis-cli", "redis-cli -u "+redis.URL(),
		"postgres@127.0.0.1:5432/app", database.User.String()+"@"+database.Host+database.Path, "127.0.0.1:5432/app", database.Host+database.Path,
		"leasehold serve", "leasehold serve 2>/dev/null --listen "+service, "127.0.0.1:8080", service)
	for page, least := range map[string]int{"README": 2, "docs/cli": 10, "docs/redis": 2, "docs/postgres": 2, "docs/dashboard": 1} {
		blocks := snippets(t, "../../../../"+page+".md")["console"]
		if len(blocks) < least {
			t.Errorf("%d blocks in %s", len(blocks), page)
		}
		for i, block := range blocks {
			t.Run(fmt.Sprint(page, " ", i+1), func(t *testing.T) {
				dir := t.TempDir()
				checkBlock(t, ours.Replace(block), dir, "LEASEHOLD_STORE=file://"+dir+"/locks")
			})
		}
	}
}

// The command of the page that writes with the token fails if the database refuses the write.
func TestGuide_AFencedWriteFailsIfItIsRefused(t *testing.T) {
	live.Test(t)
	need(t, "psql")
	page, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```\n(leasehold run orders -- sh -c .*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("the page has no such command")
	}
	at, err := url.Parse(postgrestest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+filepath.Dir(command(t))+":"+os.Getenv("PATH"), "LEASEHOLD_STORE=file://"+t.TempDir()+"/locks",
		"PGHOST="+at.Hostname(), "PGPORT="+at.Port(), "PGUSER="+at.User.Username(), "PGDATABASE="+strings.TrimPrefix(at.Path, "/"))
	run := func(fence string) error {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `psql -qc "DROP TABLE IF EXISTS orders" -c "CREATE TABLE orders AS SELECT 7 AS id, 0 AS state, $1::bigint AS fence" && `+string(example[1]), "sh", fence)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		t.Logf("fence %s: %v\n%s", fence, err, out)
		return err
	}
	if err := run("0"); err != nil {
		t.Error("a write with a greater token failed")
	}
	if err := run("9223372036854775807"); err == nil {
		t.Error("a write with a smaller token succeeded")
	}
}

// snippets returns the fenced blocks of a guide by their language.
func snippets(t *testing.T, path string) map[string][]string {
	t.Helper()
	guide, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, block := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		all[block[1]] = append(all[block[1]], block[2])
	}
	return all
}

// settle waits until a command in the background serves, holds a lock or waits for one.
const settle = `
pids="$pids $!"
jobs=$((${jobs:-0} + 1))
for i in $(seq 600); do
	test "$(leasehold list --json 2>/dev/null | grep -o leaseId | wc -l)" -ge $jobs && break
	sleep 0.05
done
`

// checkBlock runs a block in a directory.
func checkBlock(t *testing.T, block, dir string, env ...string) {
	t.Helper()
	var script strings.Builder
	var want []string
	for line := range strings.Lines(block) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			want[len(want)-1] += line
			continue
		}
		want = append(want, "")
		script.WriteString("printf '\\036'\n" + command)
		switch _, listen, serves := strings.Cut(strings.TrimSuffix(command, " &\n"), "--listen "); {
		case serves:
			listen, _, _ = strings.Cut(listen, " ")
			script.WriteString("pids=\"$pids $!\"\nuntil curl -sfo /dev/null http://" + listen + "/readyz; do sleep 0.05; done\n")
		case strings.HasSuffix(strings.TrimSpace(command), "&"):
			script.WriteString(settle)
		}
	}
	script.WriteString("printf '\\036'; kill $pids 2>/dev/null; wait\n")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Dir(command(t))+":"+os.Getenv("PATH")), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	got := strings.Split(string(out), "\036")[1:]
	if len(got) != len(want)+1 {
		t.Fatalf("%d outputs of %d commands:\n%s", len(got), len(want), out)
	}
	for i := range want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(want[i])), "…", ".+")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(squeeze(got[i])) {
			t.Errorf("printed:\n%s\nwant:\n%s", got[i], want[i])
		}
	}
}

// squeeze replaces the spaces between columns by one space.
func squeeze(text string) string {
	text = strings.TrimSuffix(text, "\n") // some answers of a service have no newline
	return regexp.MustCompile(" +").ReplaceAllString(text, " ")
}
