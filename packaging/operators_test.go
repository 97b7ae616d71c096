//go:build linux

package packaging

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestOperators_EveryCommandDoesWhatItShows runs the blocks of docs/operators.md that look
// like a terminal, one after the other on one host: what follows "$ " is typed, the rest is
// expected, and "…" stands for anything.
func TestOperators_EveryCommandDoesWhatItShows(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	var commands, want []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands, want = append(commands, command), append(want, "")
				script.WriteString("printf '\\036'\n" + command)
			} else {
				want[len(want)-1] += line
			}
		}
	}
	// The service listens in a network of its own, so that its port is free. It ends with the host.
	text := "export LEASEHOLD_STORE=\nset +e\nexec 2>&1\n" + script.String() + "printf '\\036'\n"
	got := strings.Split(host(t, "cat >/tmp/script <<'END OF SCRIPT'\n"+text+"\nEND OF SCRIPT\nunshare --net sh -c 'ip link set lo up && exec sh /tmp/script'"), "\036")
	got = got[1:]
	if len(got) != len(want)+1 || len(want) < 10 {
		t.Fatalf("%d outputs of %d commands: %q", len(got), len(want), got)
	}
	for i := range want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want[i]), "…", ".+")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(got[i]) {
			t.Errorf("$ %sprinted:\n%s\nwant:\n%s", commands[i], got[i], want[i])
		}
	}
}
