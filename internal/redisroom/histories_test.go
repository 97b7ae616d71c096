//go:build !soak

package redisroom_test

// histories is how many random histories are played: 50 000 steps, of which
// 20 000 at least are judged.
const histories = 200

// names is how many names are used once.
const names = 20_000
