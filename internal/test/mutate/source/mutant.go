// Package source changes conditions and constants of sources, one at a time.
package source

import (
	"fmt"
	"strings"
)

// Mutant is one change of one file.
type Mutant struct {
	File   string
	text   string // of the file, unchanged
	at     int    // where in text
	before string // the text there
	after  string // the replacement
}

// String describes the change: file, line and column, old and new text, and the line.
func (m Mutant) String() string {
	line := 1 + strings.Count(m.text[:m.at], "\n")
	column := m.at - strings.LastIndexByte(m.text[:m.at], '\n')
	return fmt.Sprintf("%s:%d:%d: %s", m.File, line, column, m.change())
}

// Key identifies the change without a line number, so that it stays the same when lines are
// added above: file, old and new text, and the line with the place marked.
func (m Mutant) Key() string { return m.File + ": " + m.change() }

func (m Mutant) change() string {
	start := strings.LastIndexByte(m.text[:m.at], '\n') + 1
	end := len(m.text)
	if i := strings.IndexByte(m.text[m.at:], '\n'); i >= 0 {
		end = m.at + i
	}
	rest := m.text[m.at+len(m.before) : max(end, m.at+len(m.before))]
	return fmt.Sprintf("%s«%s → %s»%s", strings.TrimLeft(m.text[start:m.at], " \t"), oneLine(m.before), oneLine(m.after), rest)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Changed returns the file's text with the change.
func (m Mutant) Changed() string { return m.text[:m.at] + m.after + m.text[m.at+len(m.before):] }

// others maps an operator to its replacements.
var others = map[string][]string{
	"<": {"<=", ">="}, "<=": {"<", ">"}, ">": {">=", "<="}, ">=": {">", "<"},
	"+": {"-"}, "-": {"+"}, "*": {"/"}, "/": {"*"},
	// Go
	"!=": {"=="}, "&&": {"||"}, "||": {"&&"}, "<<": {">>"}, ">>": {"<<"},
	// Lua
	"==": {"~="}, "~=": {"=="}, "and": {"or"}, "or": {"and"},
	// both
	"true": {"false"}, "false": {"true"}, "min": {"max"}, "max": {"min"},
}

// Text returns the file's text without the change.
func (m Mutant) Text() string { return m.text }
