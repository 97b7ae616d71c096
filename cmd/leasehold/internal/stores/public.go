package stores

import (
	"net/url"
	"regexp"
	"strings"
)

// Public returns a URL without the credentials of the store: passwords, tokens, and the
// names of the files that hold them. The result is the same for each way to give the
// password. Secret reports whether the URL itself holds a password or a token.
func Public(rawURL string) (public string, secret bool) {
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok {
		return rawURL, false
	}
	front, query, asked := strings.Cut(rest, "?")
	front, secret = withoutPassword(strings.TrimPrefix(scheme, quorumPrefix), front)
	public = scheme + ":" + front
	if !asked {
		return public, secret
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		pair, hidden := withoutSecret(pair)
		secret = secret || hidden
		if pair != "" {
			kept = append(kept, pair)
		}
	}
	if len(kept) > 0 {
		public += "?" + strings.Join(kept, "&")
	}
	return public, secret
}

// withoutPassword removes the password from the part before the path. This part may name
// several hosts, which net/url does not support. A user of NATS without a password is a token.
func withoutPassword(scheme, front string) (string, bool) {
	rest, ok := strings.CutPrefix(front, "//")
	if !ok {
		return front, false
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	user, password, _ := strings.Cut(rest[:max(at, 0)], ":")
	switch {
	case at < 0:
		return front, false
	case user == "":
		return "//" + rest[at+1:], password != ""
	case password == "" && (scheme == "nats" || scheme == "tls"):
		return "//" + rest[at+1:], true
	}
	return "//" + user + rest[at:], password != ""
}

// isURL matches a URL, and no connection string of libpq.
var isURL = regexp.MustCompile(`^[a-z][a-z0-9+]*://`)

// withoutSecret removes a parameter of the query if it is a password, or names the file of
// one. A parameter that is a URL is kept, without its secrets.
func withoutSecret(pair string) (kept string, secret bool) {
	name, value, _ := strings.Cut(pair, "=")
	if text, err := url.QueryUnescape(name); err == nil {
		name = text
	}
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch {
	case name == "node" || name == "listen":
		text, err := url.QueryUnescape(value)
		if err != nil {
			return "", true // it may contain a password
		}
		if lower := strings.ToLower(text); !isURL.MatchString(text) && strings.Contains(lower, "pass") {
			return "", strings.Contains(lower, "password") // a connection string of libpq, perhaps with passfile
		}
		public, secret := Public(text)
		return name + "=" + url.QueryEscape(public), secret
	case strings.HasSuffix(name, "password-file") || name == "token-file" || name == "passfile" || name == "creds":
		return "", false
	case strings.Contains(name, "password") || name == "token":
		return "", true
	}
	return pair, false
}
