package cli_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestList_NoColorOnATerminalWhoseUserWantsNone(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	acquire(t, url)
	isNoColor := func(pair string) bool { return strings.HasPrefix(pair, "NO_COLOR=") }
	for _, c := range []struct {
		name  string
		env   []string
		args  []string
		color bool
	}{
		{name: "as usual", color: true},
		{name: "empty", env: []string{"NO_COLOR="}, color: true},
		{name: "NO_COLOR", env: []string{"NO_COLOR=1"}},
		{name: "no wish of a user but a flag", env: []string{"NO_COLOR=1"}, args: []string{"--color", "always"}, color: true},
		{name: "a terminal without colours", env: []string{"TERM=dumb"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, slave, screen := openTerminal(t)
			cmd := exec.Command(command(t), append([]string{"list", "--store", url}, c.args...)...)
			cmd.Env = append(append(slices.DeleteFunc(os.Environ(), isNoColor), "TERM=xterm"), c.env...)
			cmd.Stdout = slave
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			screen.await(t, "mutex") // in the last line
			if got := strings.Contains(screen.String(), "\x1b["); got != c.color {
				t.Errorf("colours: %t, want %t, in %q", got, c.color, screen)
			}
		})
	}
}
