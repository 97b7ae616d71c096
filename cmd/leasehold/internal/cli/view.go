package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// age returns the time since a wall clock reading of another machine.
func age(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), 0)
}

// ownerName returns the name of a holder or waiter in messages.
func ownerName(owner string, foreign bool) string {
	if foreign {
		return cmp.Or(printable(owner), "another program")
	}
	return cmp.Or(printable(owner), "others")
}

// printable replaces control characters in text of another program: a terminal could obey
// them.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// printableLines applies printable to each line of a text: an error may quote another program.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// labelText returns all labels in one line. Their values may be any text.
func labelText(labels map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return printable(strings.Join(pairs, " "))
}
