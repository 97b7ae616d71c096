package natsdriver

import (
	"net/url"
	"strings"
)

var (
	escaped   = strings.NewReplacer("%2F", "./", "%", "=", ".", "=2E", "~", "=7E", "+", "=20")
	unescaped = strings.NewReplacer("./", "/", "=", "%")
)

// encode returns the key of the bucket for the key of a record. A slash begins a token, so that
// permissions and lists can be limited to a prefix. Since a token is not empty, a slash at the
// beginning is escaped. The result has at most 1620 bytes, and a server takes 4096.
func encode(key string) string {
	if strings.HasPrefix(key, "/") {
		return "=2F" + escaped.Replace(url.QueryEscape(key[1:]))
	}
	return escaped.Replace(url.QueryEscape(key))
}

// decode reverses encode. ok is false for a key that encode does not return.
func decode(text string) (key string, ok bool) {
	key, err := url.QueryUnescape(unescaped.Replace(text))
	return key, err == nil && encode(key) == text
}

// filter returns the narrowest filter for the keys of the bucket that begin with a prefix.
func filter(prefix string) string {
	if i := strings.LastIndex(prefix, "/"); i > 0 {
		return encode(prefix[:i]) + ".>"
	}
	return ">"
}
