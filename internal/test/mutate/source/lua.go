package source

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// luaToken matches one token of a Lua script: comments and strings, which stay unchanged,
// names, numbers and operators.
var luaToken = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|\d+|\.\.\.?|[<>=~]=|\S`)

// Word is a word of a Lua text that can be changed, and its replacement.
type Word struct {
	At     int
	Text   string
	Others []string
}

// Words returns the words of a Lua text that can be changed.
func Words(text string) (all []Word) {
	last := ""
	for _, place := range luaToken.FindAllStringIndex(text, -1) {
		word := text[place[0]:place[1]]
		if strings.HasPrefix(word, "--") {
			continue
		}
		after := others[word]
		switch {
		case word == "min" || word == "max":
			if last != "." {
				after = nil
			}
		case word == "not":
			after = []string{""}
		case word == "-" && !endsOperand(last):
			after = []string{""}
		case word[0] >= '0' && word[0] <= '9':
			after = []string{"(" + word + " + 1)"}
		}
		if len(after) > 0 {
			all = append(all, Word{At: place[0], Text: word, Others: after})
		}
		last = word
	}
	return all
}

// Lua returns the changes of a Lua file.
func Lua(file, text string) (all []Mutant, err error) {
	for _, w := range Words(text) {
		for _, other := range w.Others {
			m := Mutant{File: file, text: text, at: w.At, before: w.Text, after: other}
			if _, err := parse.Parse(strings.NewReader(m.Changed()), file); err != nil {
				return nil, fmt.Errorf("%s is no Lua: %w", m, err)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// endsOperand reports whether a minus after the token is a binary operator.
func endsOperand(token string) bool {
	switch token {
	case "", "return", "and", "or", "not", "then", "else", "do", "in":
		return false
	case ")", "]", "}":
		return true
	}
	c := token[0]
	return c == '_' || c == '\'' || c == '"' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
