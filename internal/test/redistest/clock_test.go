//go:build linux

package redistest

import (
	"testing"
	"time"
)

func TestClock_StepsThatOfOneServer(t *testing.T) {
	s, clock := StartWithClock(t)
	ahead := func() time.Duration {
		at, err := s.Client().Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(at).Round(time.Hour)
	}
	if got := ahead(); got != 0 {
		t.Errorf("%v ahead at first", got)
	}
	clock.Step(5 * time.Hour)
	if got := ahead(); got != 5*time.Hour {
		t.Errorf("%v ahead after a step of 5h", got)
	}
	clock.Step(-7 * time.Hour)
	s.Restart()
	if got := ahead(); got != -2*time.Hour {
		t.Errorf("%v ahead after a step of -7h and a restart", got)
	}
}
