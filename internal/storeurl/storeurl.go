// Package storeurl shows the URLs of stores without their secrets. Every error, log line
// and page that names a store uses it.
package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/internal/check"
)

// Encode is the advice for a URL that a password may have broken up: a slash in it ends
// the host. Such errors do not quote the URL.
const Encode = "percent-encode special characters in user name and password, such as %2F for /, %3F for ?, %23 for #, %40 for @ and %25 for %"

// schemes are always shown. Other schemes are shown only before //, since they may be the
// beginning of a user name or a password.
var schemes = []string{
	"file", "memory", "unix", "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
	"postgres", "postgresql", "mysql", "mariadb", "nats", "tls", "etcd", "etcds", "s3", "http", "https", "quorum",
}

var (
	schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+]*$`)
	// frontForm matches the part between scheme and query: the user, and the rest.
	frontForm = regexp.MustCompile(`^//([^/?#\s]*@)?((?:` + host + `(?:,` + host + `)*)?(?:/(?:` + letter + `|/)*)?)$`)
	fileForm  = regexp.MustCompile(`^()((?://(?:localhost)?/|/[^/]|[^/]).*|/)?$`)
	redisPath = regexp.MustCompile(`^[^/]*/?[0-9]*$`)
)

const (
	letter = `[A-Za-z0-9._~+-]|%[0-9A-Fa-f]{2}`
	host   = `(?:(?:` + letter + `)+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?`
)

// Redact returns a URL as it may be shown: its scheme, hosts and path. *** replaces user
// and password, and options are left out. If the parts cannot be separated with certainty, it
// returns the scheme with an ellipsis, or the ellipsis alone.
func Redact(rawURL string) string {
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok || !isScheme(scheme, rest) {
		return "…"
	}
	front, query, _ := strings.Cut(rest, "?")
	form := frontForm
	switch scheme {
	case "file":
		form = fileForm
	case "memory", "quorum":
		if rest == "" || scheme == "quorum" && (front == "" || front == "//") {
			return scheme + ":" + front // the nodes stand in the query
		}
		return scheme + ":…"
	}
	parts := form.FindStringSubmatch(front)
	switch {
	case parts == nil, strings.Contains(rest, "#"), scheme != "file" && strings.Contains(query, "@"),
		strings.Contains(scheme, "redis") && !redisPath.MatchString(parts[2]):
		return scheme + ":…"
	case scheme == "file":
		return scheme + ":" + front
	case parts[1] != "":
		return scheme + "://***@" + parts[2]
	}
	return scheme + "://" + parts[2]
}

// isScheme reports whether the text before a colon is a scheme and may be shown.
func isScheme(text, rest string) bool {
	return slices.Contains(schemes, strings.TrimPrefix(text, "quorum+")) || strings.HasPrefix(rest, "//") && schemeForm.MatchString(text)
}

// Shown reports whether Redact shows more of a URL than its scheme.
func Shown(rawURL string) bool { return !strings.HasSuffix(Redact(rawURL), "…") }

// Reason returns why a URL is refused: err, or advice in its place if the URL may have
// been broken up by a password, a part of which err may then quote.
func Reason(rawURL string, err error) error {
	scheme, rest, found := strings.Cut(rawURL, ":")
	_, query, _ := strings.Cut(rest, "?")
	switch {
	case Shown(rawURL) && !doubtful(query):
		return err
	case !found || !isScheme(scheme, rest):
		return errors.New("no scheme; want a URL such as redis://user:password@host:6379/0; " + Encode)
	case scheme != "file" && scheme != "memory" && !strings.HasPrefix(rest, "//"):
		return fmt.Errorf("// has to follow %s:, as in %[1]s://user:password@host", scheme)
	}
	return errors.New("not a URL that can be taken apart with certainty, or one with a wrong option; " + Encode)
}

// doubtful reports whether the names and values of a query may be parts of a secret: the query
// contains a secret, or a part that is not of the form name=value.
func doubtful(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		name, _, ok := strings.Cut(strings.ToLower(pair), "=")
		if pair != "" && !ok || strings.Contains(pair, "@") || secretOption.MatchString(name) {
			return true
		}
	}
	return false
}

// secretOption matches the names of options that are secrets, or URLs with secrets.
var secretOption = regexp.MustCompile(`(password|passwd|token)$|^(node|listen)$|%`)

// Invalid returns the error of a URL that is refused because of err. It matches
// driver.ErrInvalid and shows no secret.
func Invalid(rawURL string, err error) error {
	return fmt.Errorf("store URL %s: %w", Redact(rawURL), check.Invalid(Reason(rawURL, err)))
}

// Unquoted returns an error of net/url or net/http with the URL in it redacted.
func Unquoted(err error) error {
	if quoting := new(url.Error); errors.As(err, &quoting) {
		return fmt.Errorf("%s %s: %w", quoting.Op, Redact(quoting.URL), quoting.Err)
	}
	return err
}

// Check returns an error if a URL has an @ after its hosts, or a # anywhere: the text before it
// may be the beginning of a password.
func Check(rawURL string) error {
	_, rest, _ := strings.Cut(rawURL, "://")
	front, _, _ := strings.Cut(rest, "?")
	_, path, _ := strings.Cut(front, "/")
	if strings.Contains(path, "@") || strings.Contains(rest, "#") {
		return errors.New("a # or, in the path, an @ is not percent-encoded")
	}
	return nil
}
