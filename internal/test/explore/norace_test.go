//go:build !race

package explore_test

// slower is by how many steps less is explored.
const slower = 0
