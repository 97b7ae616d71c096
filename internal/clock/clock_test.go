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

func TestAdvance_JumpsAheadWithoutTime(t *testing.T) {
	before, real := Now(), time.Now()
	Advance(time.Hour)
	if got, passed := Now().Sub(before), time.Since(real); got < time.Hour || got > time.Hour+passed+time.Second {
		t.Errorf("elapsed %v, want 1h", got)
	}
}

// TestNow_CountsSuspension replaces what the system says about suspension. A
// step of the wall clock is what makes Now ask.
func TestNow_CountsSuspension(t *testing.T) {
	var slept time.Duration
	system = func() time.Duration { return atStart + slept }
	t.Cleanup(func() { system = suspended; asleep.Store(0) })
	step := func() { gap.Add(int64(time.Hour)) }

	before := Now()
	step()
	if got := Now().Sub(before); got > time.Minute {
		t.Errorf("a step of the wall clock alone counts as %v", got)
	}
	slept = time.Hour
	step()
	last := Now()
	if got := last.Sub(before); got < time.Hour || got > time.Hour+time.Minute {
		t.Errorf("elapsed %v after an hour of suspension", got)
	}
	slept -= time.Microsecond // two readings of two clocks are a moment apart
	step()
	if now := Now(); now.Before(last) {
		t.Errorf("went back by %v", last.Sub(now))
	}
}

func TestLocal_ComparesWithTheSystemsClock(t *testing.T) {
	Advance(time.Hour)
	before := time.Now()
	at := Local(Now())
	if at.Before(before) || at.After(time.Now()) {
		t.Errorf("off by %v", at.Sub(before))
	}
}
