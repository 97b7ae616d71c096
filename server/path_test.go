package server_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/server"
)

// segmentsOf takes a path apart in the simplest way.
func segmentsOf(u *url.URL) (segments []string) {
	for raw := range strings.SplitSeq(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		text, err := url.PathUnescape(raw)
		if err != nil || len(segments) == 8 {
			return nil
		}
		segments = append(segments, text)
	}
	return segments
}

// FuzzSplit compares how paths are taken apart with how net/url reads them. The
// second path is put in the place of the decoded one, as a handler in front of
// the service may do.
func FuzzSplit(f *testing.F) {
	for _, path := range []string{
		"/v1/locks/orders-42", "/v1/locks/orders%2F42/leases/a", "/v1/locks/a%3ab", "/v1/locks/%C3%A9", "/v1/locks/é", "/v1/locks/é%2Fb",
		"/v1/locks/a b", "/v1/locks/%25", "/v1/locks/%2", "/v1/locks/%zz", "//", "/", "*", "", "/a/b/c/d/e/f/g/h", "/a/b/c/d/e/f/g/h/i%2Fj", "/%2f/%2F", "/a%2fb/", "/a|b%41",
	} {
		f.Add(path, "")
		f.Add(path, "/v1/locks/orders/42")
	}
	f.Fuzz(func(t *testing.T, path, instead string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Skip(err) // net/http answers it
		}
		if instead != "" {
			u.Path = instead
		}
		if got, want := server.Split(u), segmentsOf(u); !slices.Equal(got, want) {
			t.Errorf("%q, %q: %q, want %q", u.RawPath, u.Path, got, want)
		}
	})
}

// FuzzQuery compares how a parameter is found with what net/url finds.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{
		"", "keepMs=0&forbidMs=60000", "forbidMs=1&forbidMs=2", "forbidMs", "&&=", "forbidMs=%zz&forbidMs=3", "forbid%4Ds=+4", "forbidMs=1;keepMs=2&forbidMs=5", "%zz=1&forbidMs=6=7",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u := &url.URL{RawQuery: raw}
		if got, want := server.Query(u, "forbidMs"), u.Query().Get("forbidMs"); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	})
}
