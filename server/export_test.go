package server

import (
	"net/url"
	"time"
)

// WithSlowness sets how long headers and bodies may take to arrive.
func WithSlowness(header, body time.Duration) Option {
	return func(c *config) error {
		c.headerTimeout, c.bodyTimeout = header, body
		return nil
	}
}

// StaleFields are those that the document describes and no type has.
func StaleFields() []string {
	types := make(schemas)
	paths(routes(), types)
	var stale []string
	for name, all := range fields {
		properties, _ := types[name]["properties"].(object)
		for field := range all {
			if properties[field] == nil {
				stale = append(stale, name+"."+field)
			}
		}
	}
	return stale
}

// Split is what a path is taken apart into, decoded: nil if
// there are too many segments.
func Split(u *url.URL) (segments []string) {
	var room [maxSegments]part
	for _, p := range split(u, room[:0]) {
		segments = append(segments, p.text)
	}
	return segments
}

// Query is a parameter of the query.
func Query(u *url.URL, what string) string { return query(u, what) }
