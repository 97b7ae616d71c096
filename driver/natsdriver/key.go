package natsdriver

import (
	"fmt"
	"strconv"
	"strings"
)

// empty is the token of nothing: the tokens of a subject are not empty.
const empty = "="

// encode returns the key of the bucket for the key of a record. A slash separates two tokens, so
// that permissions and lists can be limited to a prefix. Other bytes than letters, digits, - and _
// become = and two hexadecimal digits, at most 1620 bytes in all; a server takes 4096.
func encode(key string) string {
	var b strings.Builder
	for i, token := range strings.Split(key, "/") {
		if i > 0 {
			b.WriteByte('.')
		}
		if token == "" {
			b.WriteString(empty)
		}
		for _, c := range []byte(token) {
			if isPlain(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "=%02X", c)
			}
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// decode reverses encode. ok is false for a key that is not of a lock.
func decode(text string) (key string, ok bool) {
	var b strings.Builder
	for i, token := range strings.Split(text, ".") {
		if i > 0 {
			b.WriteByte('/')
		}
		if token == empty {
			continue
		}
		for token != "" {
			if isPlain(token[0]) {
				b.WriteByte(token[0])
				token = token[1:]
				continue
			}
			if token[0] != '=' || len(token) < 3 {
				return "", false
			}
			c, err := strconv.ParseUint(token[1:3], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(c))
			token = token[3:]
		}
	}
	return b.String(), true
}

// filter returns the narrowest filter for the keys of the bucket that begin with a prefix.
func filter(prefix string) string {
	if i := strings.LastIndex(prefix, "/"); i >= 0 {
		return encode(prefix[:i]) + ".>"
	}
	return ">"
}
