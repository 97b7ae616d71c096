package session

import (
	"math/rand/v2"
	"testing"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// TestAgenda_HoldsWhatWasSetAndNotRemoved compares it with a map.
func TestAgenda_HoldsWhatWasSetAndNotRemoved(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		a := agenda[task]{place: func(t *task) *int32 { return &t.place }}
		all := make([]task, 1+rnd.IntN(40))
		want := make(map[*task]clock.Instant)
		for range 300 {
			of := &all[rnd.IntN(len(all))]
			switch rnd.IntN(4) {
			case 0:
				a.remove(of)
				delete(want, of)
			case 1:
				if first, _ := a.first(); first != nil {
					a.remove(first)
					delete(want, first)
				}
			default:
				at := clock.Instant(1 + rnd.IntN(50))
				a.set(of, at)
				want[of] = at
			}
			var least clock.Instant
			for i := range all {
				at := want[&all[i]]
				if got := a.due(&all[i]); got != at {
					t.Fatalf("%d: one is due at %d, want %d", seed, got, at)
				}
				if at != 0 && (least == 0 || at < least) {
					least = at
				}
			}
			if first, at := a.first(); at != least || (first == nil) != (least == 0) || first != nil && want[first] != at || len(a.entries) != len(want) {
				t.Fatalf("%d: the first is due at %d, want %d; there are %d, want %d", seed, at, least, len(a.entries), len(want))
			}
		}
	}
}
