//go:build seeds_broken

package seeds

var _ = missing
