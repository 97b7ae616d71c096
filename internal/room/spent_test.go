package room

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// spend has an id enter and released for good.
func spend(t *testing.T, r *Record, id string, forbid time.Duration, now int64) {
	t.Helper()
	got, _, err := Acquire(r, driver.Request{ID: id, TTL: time.Minute, SingleUseID: true}, now)
	if err != nil || got.State != driver.Granted {
		t.Fatalf("acquire %s: %+v, %v", id, got, err)
	}
	if got, _ := Release(r, driver.Ref{ID: id, SingleUseID: true, RejectIDFor: forbid}, now); got.State != driver.Released {
		t.Fatalf("release %s: %+v", id, got)
	}
}

// TestSpent_TakesWhatTheLivingOnesTake releases an id each millisecond, of which
// a thousand are to be remembered at a time.
func TestSpent_TakesWhatTheLivingOnesTake(t *testing.T) {
	var r Record
	const alive = 1000
	now := int64(1e12)
	for i := range 20 * alive {
		now += 1000
		spend(t, &r, fmt.Sprint("id-", i), alive*time.Millisecond, now)
		for _, age := range []int{0, alive - 1, alive} {
			if i < age {
				continue
			}
			if _, spent := r.Spent.released(fmt.Sprint("id-", i-age), now/1000); spent != (age < alive) {
				t.Fatalf("after %d ms: remembered %v", age, spent)
			}
		}
	}
	if n := len(r.Spent); n > 2*alive {
		t.Errorf("%d ids are kept, of which %d are to be remembered", n, alive)
	}
	if until := r.Until(); until != now/1000+alive {
		t.Errorf("the record counts until %d, want %d", until, now/1000+alive)
	}
	if r.Idle(now) || !r.Idle(now+alive*1000) {
		t.Error("a room is idle once nothing is remembered any more, and not before")
	}
}

// TestSpent_CostsTheSameHoweverManyThereAre fills a record as a busy minute does.
func TestSpent_CostsTheSameHoweverManyThereAre(t *testing.T) {
	var r Record
	made := 0
	pairs := func(rounds, n int) time.Duration { // the least of the rounds: a busy machine only adds
		var took []time.Duration
		for range rounds {
			begin := time.Now()
			for range n {
				made++
				spend(t, &r, fmt.Sprint("id-", made), time.Hour, int64(1e12))
			}
			took = append(took, time.Since(begin)/time.Duration(n))
		}
		return slices.Min(took)
	}
	first := pairs(20, 50)
	pairs(1, 200_000)
	last := pairs(20, 50)
	t.Logf("%v a pair with a thousand ids, %v with %d", first, last, made)
	if last > 20*first { // hundreds of times, if all of them are looked at
		t.Errorf("a pair takes %v with %d ids, %v with a thousand", last, made, first)
	}
}
