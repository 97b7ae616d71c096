package filedriver

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFileName_KeepsKeysApartWhereCaseIsFolded(t *testing.T) {
	keys := []string{
		"a", "A", "a.", "a ", ".", "..", "a/b", "a\\b", "a%2fb", "a%2Fb", "con", "nul.room", "é", "e\u0301", "K", "\u212a",
		strings.Repeat("x", 512), strings.Repeat("x", 511), strings.Repeat("X", 512), strings.Repeat("/", 512), "k-a", "h-", "draft", "",
	}
	seen := map[string]string{}
	for _, key := range keys {
		name := fileName(key)
		if other, ok := seen[strings.ToLower(name)]; ok {
			t.Errorf("%q and %q meet in %s", key, other, name)
		}
		seen[strings.ToLower(name)] = key
	}
}

func FuzzFileName(f *testing.F) {
	f.Add("orders/42", "orders%2f42")
	f.Add("A", "a")
	f.Add(strings.Repeat("é", 256), strings.Repeat("é", 255))
	f.Fuzz(func(t *testing.T, one, two string) {
		name := fileName(one)
		if len(name) > 143 || strings.ContainsAny(name, "/\\:*?\"<>|\x00") || strings.ToLower(name) != name || !utf8.ValidString(name) {
			t.Errorf("%q has the name %q", one, name)
		}
		if !isOurName(name) {
			t.Errorf("%q is not recognised", name)
		}
		if key, ok := keyOf(name); ok && key != one {
			t.Errorf("%q reads back as %q", one, key)
		}
		if one != two && name == fileName(two) {
			t.Errorf("%q and %q meet", one, two)
		}
		_, _ = keyOf(one)
	})
}
