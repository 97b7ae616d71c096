package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNow_FollowsVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := Now()
		time.Sleep(time.Hour)
		if got := Now().Sub(before); got != time.Hour {
			t.Errorf("elapsed %v, want 1h", got)
		}
	})
}

func TestNow_IsMonotonicWithoutSuspension(t *testing.T) {
	last := Now()
	for range 100_000 {
		now := Now()
		if now.Before(last) {
			t.Fatalf("went back by %v", last.Sub(now))
		}
		last = now
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
