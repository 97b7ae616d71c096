//go:build linux || darwin

package cli_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// TestRelease_HR_C7_ALateAnswerDoesNotHideALoss drops the answer to the first try of
// a release, both for a valid lease and for a lost one.
func TestRelease_HR_C7_ALateAnswerDoesNotHideALoss(t *testing.T) {
	live.Test(t)
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	release := func(id string) int {
		t.Helper()
		lost := proxy.Add(respproxy.DropReply, 1, respproxy.Mentions(id))
		out, code := run(t, "release", "--store", "redis://"+proxy.Addr()+"?timeout=1s", "demo", id)
		t.Log(out)
		lost.WaitFired(t, 1)
		return code
	}
	if code := release("NEVER"); code != 79 {
		t.Errorf("exit code %d for a lease that was lost, want 79", code)
	}
	id := acquire(t, server.URL())
	for range 2 {
		if code := release(id); code != 0 {
			t.Errorf("exit code %d for a lease that was released, want 0", code)
		}
	}
}
