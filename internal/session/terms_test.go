package session

import (
	"testing"
	"time"
)

// TestTerms_SayHowLongAStoreIsWaitedFor.
func TestTerms_SayHowLongAStoreIsWaitedFor(t *testing.T) {
	since := time.Now()
	now := since.Add(3 * time.Second)
	for _, c := range []struct {
		outage, try    time.Duration
		wantOutage     time.Duration
		wantTry        time.Duration
		tiredAtTheLast bool // with some time left
	}{
		{30 * time.Second, 0, 27 * time.Second, 7 * time.Second, false},
		{5 * time.Second, 0, 2 * time.Second, 2 * time.Second, false},
		{30 * time.Second, 20 * time.Second, 27 * time.Second, 17 * time.Second, false},
		{0, 0, 7 * time.Second, 7 * time.Second, true},
		{-1, 0, 100 * 365 * 24 * time.Hour, 7 * time.Second, false},
		{1, 0, 1 - 3*time.Second, 1 - 3*time.Second, false},
	} {
		terms := &Terms{MaxOutage: c.outage, MaxTry: c.try}
		if o, try := terms.outage(since, now), terms.tryOutage(since, now); o != c.wantOutage || try != c.wantTry {
			t.Errorf("%+v: %v and %v", c, o, try)
		}
		if terms.tired(1) != c.tiredAtTheLast || !terms.tired(0) || !terms.tired(-1) {
			t.Errorf("%+v: tired with time left: %v, without: %v", c, terms.tired(1), terms.tired(0))
		}
	}
}
