//go:build soak

package redisroom_test

func init() { names = 1_000_000 }
