//go:build race

package redisroom_test

// raceEnabled: the race detector empties pools at random.
const raceEnabled = true
