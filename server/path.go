package server

import (
	"net/url"
	"strings"
)

// maxSegments is more than any path has that there is.
const maxSegments = 8

// part is one segment of a path: as it came, and decoded.
type part struct{ raw, text string }

// split returns the segments of a path; none if there are more than any path has,
// or if one cannot be decoded.
func split(u *url.URL) (parts []part) {
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	if strings.Count(path, "/") >= maxSegments {
		return nil
	}
	for raw := range strings.SplitSeq(path, "/") {
		text, err := url.PathUnescape(raw)
		if err != nil {
			return nil
		}
		parts = append(parts, part{raw, text})
	}
	return parts
}
