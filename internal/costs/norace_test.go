//go:build !race

package costs_test

const raceEnabled = false
