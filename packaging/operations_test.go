//go:build linux

package packaging

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestOperations_EveryCommandDoesWhatItShows runs the blocks of docs/operations.md that look
// like a terminal, one after the other on one host.
func TestOperations_EveryCommandDoesWhatItShows(t *testing.T) {
	t.Parallel()
	s := readSession(t, "console")
	if len(s.want) < 10 {
		t.Fatalf("%d commands", len(s.want))
	}
	// The service listens in a network of its own, so that its port is free. It ends with the host.
	s.check(t, host(t, "cat >/tmp/script <<'END OF SCRIPT'\nexport LEASEHOLD_STORE=\n"+s.script+
		"\nEND OF SCRIPT\nunshare --net sh -c 'ip link set lo up && exec sh /tmp/script'"))
}

// TestOperations_EveryCommandForSystemdDoesWhatItShows runs the blocks that need a running
// systemd, after the package was installed.
func TestOperations_EveryCommandForSystemdDoesWhatItShows(t *testing.T) {
	t.Parallel()
	s := readSession(t, "console systemd")
	if len(s.want) < 5 {
		t.Fatalf("%d commands", len(s.want))
	}
	s.check(t, booted(t, "dpkg -i leasehold_0.1.0_linux_amd64.deb >/dev/null 2>&1\n"+s.script))
}

// session is the terminal of docs/operations.md: commands after "$ ", and the expected
// output, in which "…" is any text.
type session struct {
	script         string
	commands, want []string
}

// readSession reads the blocks of one kind.
func readSession(t *testing.T, kind string) session {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	s := session{script: "set +e\nexec 2>&1\n"}
	for _, block := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				s.commands, s.want = append(s.commands, command), append(s.want, "")
				s.script += "printf '\\036'\n" + command
			} else {
				s.want[len(s.want)-1] += line
			}
		}
	}
	s.script += "printf '\\036'\n"
	return s
}

func (s session) check(t *testing.T, output string) {
	t.Helper()
	got := strings.Split(output, "\036")[1:]
	if len(got) != len(s.want)+1 {
		t.Fatalf("%d outputs of %d commands: %q", len(got), len(s.want), got)
	}
	for i, want := range s.want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".+")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(got[i]) {
			t.Errorf("$ %sprinted:\n%s\nwant:\n%s", s.commands[i], got[i], want)
		}
	}
}
