package cli

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

// Errors show names and reasons of other programs on terminals, and labels show the names of
// commands.
func TestOutput_HostileTextDoesNotReachATerminal(t *testing.T) {
	const hostile = "\x1b]0;owned\a\u009b2J"
	var out, labels strings.Builder
	describe(&labels, map[string]string{hostile: hostile})
	cmd := newRoot(new(global))
	cmd.SetErr(&out)
	new(global).complain(cmd, errors.New("held by "+hostile+"\nsecond line"))
	for what, text := range map[string]string{
		"an error": out.String(), "an owner": ownerName(hostile, false), "labels": labels.String(),
		"the label of a command": processOf([]string{"/bin/" + hostile})[labelCommand],
	} {
		if text == "" || strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), unicode.IsControl) {
			t.Errorf("%s: %q", what, text)
		}
	}
	if !strings.Contains(out.String(), "\nsecond line\n") {
		t.Errorf("lines were joined: %q", out.String())
	}
}
