package room

import "strings"

// The name of a visit is a path. A lease belongs to the common path of all visits that have
// asked for it, so one word decides whether a visit may undo it.

// below reports whether visit is name itself, or made on its behalf.
func below(visit, name string) bool {
	rest, ok := strings.CutPrefix(visit, name)
	return ok && (rest == "" || rest[0] == '/')
}

// common returns the longest path that two visits are below, or "".
func common(a, b string) string {
	for a != "" && !below(b, a) {
		a = a[:max(strings.LastIndexByte(a, '/'), 0)]
	}
	return a
}
