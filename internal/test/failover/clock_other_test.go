//go:build !linux

package failover_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// startTimeless starts a server with the system's clock: only on Linux a test can hold the
// clock of a server.
func startTimeless(t *testing.T) *redistest.Server {
	t.Helper()
	return redistest.Start(t)
}

// timeless returns no variables, for the same reason.
func timeless(*testing.T) []string { return nil }
