//go:build soak

package locktest_test

import "testing"

func TestSoak_ServiceOnRedis(t *testing.T) { serviceOnRedis(t) }
