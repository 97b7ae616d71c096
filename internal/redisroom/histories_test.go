//go:build !soak

package redisroom_test

// histories is how many random histories are played: 50 000 steps.
const histories = 200

// names is how many names are used once.
const names = 20_000
