package room

import "strings"

// Visits have paths for names. What a lease belongs to is what the names of those
// have in common who have asked for it, so that one word is enough to know whether
// somebody may undo it.

// below reports whether visit is the one called name, or made on its behalf.
func below(visit, name string) bool {
	rest, ok := strings.CutPrefix(visit, name)
	return ok && (rest == "" || rest[0] == '/')
}

// common is the longest path that two visits are below, empty if there is none.
func common(a, b string) string {
	for a != "" && !below(b, a) {
		a = a[:max(strings.LastIndexByte(a, '/'), 0)]
	}
	return a
}
