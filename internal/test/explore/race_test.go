//go:build race

package explore_test

// slower is by how many steps less is explored: the race detector makes it ten times as slow.
const slower = 1
