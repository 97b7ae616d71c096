//go:build !race

package redisroom_test

const raceEnabled = false
