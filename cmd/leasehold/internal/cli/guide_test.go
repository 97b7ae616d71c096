//go:build linux || darwin

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// TestGuide_EverySnippetDoesWhatItShows runs the console blocks of docs/cli.md:
// lines after "$ " are commands, the other lines are the expected output, and
// "…" stands for any text.
func TestGuide_EverySnippetDoesWhatItShows(t *testing.T) {
	live.Test(t)
	blocks := snippets(t, "../../../../docs/cli.md")["console"]
	if len(blocks) < 5 {
		t.Fatalf("%d blocks found", len(blocks))
	}
	for i, block := range blocks {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			dir := t.TempDir()
			checkBlock(t, block, dir, "LEASEHOLD_STORE=file://"+dir+"/locks")
		})
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

// settle waits until a command in the background holds a lock or waits for one.
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
		if strings.HasSuffix(strings.TrimSpace(command), "&") {
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
