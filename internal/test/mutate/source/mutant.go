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
	before string // what stands there
	after  string // what takes its place
}

// String names the change: file, line and column, what is changed, and the line.
func (m Mutant) String() string {
	line := 1 + strings.Count(m.text[:m.at], "\n")
	column := m.at - strings.LastIndexByte(m.text[:m.at], '\n')
	return fmt.Sprintf("%s:%d:%d: %s", m.File, line, column, m.change())
}

// Key names the change by what does not move when lines are added before it: file,
// what is changed, and the line with the place marked.
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

// Changed is the file's text with the change.
func (m Mutant) Changed() string { return m.text[:m.at] + m.after + m.text[m.at+len(m.before):] }

// others are the operators that take the place of one.
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

// Text is the file's text without the change.
func (m Mutant) Text() string { return m.text }

// Place is where the change begins in the text, and what it puts there.
func (m Mutant) Place() (at int, after string) { return m.at, m.after }
