package source

import (
	"os"
	"strings"
	"testing"
)

// TestReasons_AreOfChangesThatThereAre: a line that has changed since needs another look.
func TestReasons_AreOfChangesThatThereAre(t *testing.T) {
	reasons, err := Reasons()
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]map[string]bool)
	for key, reason := range reasons {
		file, _, _ := strings.Cut(key, ": ")
		if keys[file] == nil {
			keys[file] = changes(t, file)
		}
		if !keys[file][key] || reason == "" {
			t.Errorf("%q is no change, or has no reason: %q", key, reason)
		}
	}
}

// changes are the keys of the changes of a file.
func changes(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	var all []Mutant
	if strings.HasSuffix(file, ".lua") {
		all = Lua(file, string(text))
	} else if all, err = Go(file, string(text)); err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]bool)
	for _, m := range all {
		keys[m.Key()] = true
	}
	return keys
}
