//go:build !race

package skip

// Race reports whether the build has the race detector.
const Race = false
