package room

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// spend acquires and releases by an id that is used once.
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

// TestSpent_TakesWhatTheLivingOnesTake releases an id each millisecond; a thousand of them must
// be remembered at a time.
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
		t.Error("a room is idle once its last id has expired, and not before")
	}
}
