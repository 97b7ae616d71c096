//go:build soak

package redisroom_test

// histories is how many random histories are played, under the tag soak: a
// million steps.
const histories = 4000

// names is how many names are used once.
const names = 1_000_000
