package operations

import (
	"context"
	"testing"
)

// Whoever has no time left learns that nothing runs.
func TestJobs_ThatAllHaveEndedIsToldWithoutTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := newJobs(1).wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
