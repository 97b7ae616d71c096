//go:build soak

package httpdriver_test

import "testing"

func TestSoak_LibraryOverAServiceOnRedis(t *testing.T) { overRedis(t) }
