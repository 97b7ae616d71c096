//go:build race

package matrix_test

// slower tells of the race detector, which makes a play ten times as slow.
const slower = 1
