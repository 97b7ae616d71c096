package source

import (
	"regexp"
	"strings"
)

// luaToken matches one token of a Lua script: comments and strings, which stay unchanged,
// names, numbers and operators.
var luaToken = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|\d+|\.\.\.?|[<>=~]=|\S`)

// Lua returns the changes of a Lua file.
func Lua(file, text string) (all []Mutant) {
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
		for _, other := range after {
			all = append(all, Mutant{File: file, text: text, at: place[0], before: word, after: other})
		}
		last = word
	}
	return all
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
