package locktest_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// told is a test that only listens.
type told struct {
	testing.TB
	log    []string
	failed bool
}

func (t *told) Helper()         {}
func (t *told) Fail()           { t.failed = true }
func (t *told) Log(args ...any) { t.log = append(t.log, args[0].(string)) }

func TestAttempt_IsWhatItsTestWouldBe(t *testing.T) {
	good := &told{TB: t}
	a := &attempt{TB: good}
	a.run(func() { a.Log("fine") })
	a.report()
	if a.Failed() || good.failed || len(good.log) != 1 {
		t.Errorf("a case that passes: %+v, failed %v", good.log, good.failed)
	}

	bad := &told{TB: t}
	a = &attempt{TB: bad}
	var done []string
	a.run(func() {
		a.Cleanup(func() { done = append(done, "first") })
		a.Cleanup(func() { done = append(done, "second") })
		a.Errorf("wrong %d", 1)
		a.Fatal("enough")
		done = append(done, "never")
	})
	a.report()
	if !a.Failed() || !bad.failed || len(bad.log) != 2 || !strings.HasPrefix(bad.log[0], "wrong 1 [attempt_test.go:") {
		t.Errorf("a case that fails: %q, failed %v", bad.log, bad.failed)
	}
	if !slices.Equal(done, []string{"second", "first"}) {
		t.Errorf("cleaned up: %q", done)
	}
}

func TestPulse_TellsTheSlowestAnswerSince(t *testing.T) {
	now := time.Now()
	p := &pulse{slow: []answer{{now.Add(-time.Minute), time.Hour}, {now, time.Second}, {now, 2 * time.Second}}}
	if got := p.slowest(now.Add(-time.Second)); got != 2*time.Second {
		t.Errorf("the slowest of a second is %v", got)
	}
	if got := p.slowest(now.Add(time.Second)); got != 0 {
		t.Errorf("the slowest of the time to come is %v", got)
	}
	p.asked = now.Add(-3 * time.Second)
	if got := p.slowest(now); got < 3*time.Second {
		t.Errorf("one that is not answered yet takes %v", got)
	}
}
