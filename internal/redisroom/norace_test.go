//go:build !race

package redisroom

const RaceEnabled = false
