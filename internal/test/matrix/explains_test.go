package matrix_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Whoever loses one of several locks is told that the context of the others has ended, too.
func TestExplains_TheLossOfOneOfSeveralLocks(t *testing.T) {
	lost := fmt.Errorf("%w: %w", leasehold.ErrNotHeld, leasehold.ErrLost)
	whole := errors.Join(lost, fmt.Errorf("%w: %w: %w", leasehold.ErrNotHeld, leasehold.ErrContextEnded, leasehold.ErrLost))
	for name, row := range map[string]struct {
		d    disturbance
		want bool
	}{
		"a store that is away for longer than the lease lasts": {disturbance{fate: starved, at: 1, lasts: 5 * time.Second}, true},
		"one answer that was lost":                             {disturbance{fate: unanswered}, false},
	} {
		c := &cast{world: &world{slack: 3 * time.Second}}
		for _, err := range []error{lost, whole} {
			if got := c.explains(new(entry), row.d, err); got != row.want {
				t.Errorf("%s explains %q: %t, want %t", name, err, got, row.want)
			}
		}
	}
}
