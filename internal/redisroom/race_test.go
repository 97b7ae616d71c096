//go:build race

package redisroom

// RaceEnabled: the race detector empties pools at random.
const RaceEnabled = true
