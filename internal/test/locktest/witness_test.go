package locktest_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// sighting is what a lease gives its holder.
type sighting struct {
	key       string
	exclusive bool
	// weight is the part of limit that a sharer takes; a limit of 0 means unlimited.
	weight, limit int
	token         int64
}

// by returns the sighting of a lease.
func (s sighting) by(lease *leasehold.Lease) sighting {
	s.token = lease.Token()
	return s
}

// witness collects the sightings of holders and compares them with the promises of the kinds of
// locks. It is safe for concurrent use.
type witness struct {
	start time.Time

	mu      sync.Mutex
	beliefs map[party]*belief
}

// party is a holder in one role. All holds of a re-entrant owner are one party.
type party struct {
	owner string
	sighting
}

// belief is the time through which a party certainly held the lock: from its first sighting to
// its last, since the start.
type belief struct {
	party
	first, last time.Duration
}

func (b *belief) String() string {
	side := fmt.Sprintf("takes %d of %d", b.weight, b.limit)
	if b.exclusive {
		side = "is alone"
	}
	return fmt.Sprintf("%s %s with token %d from %v to %v", b.owner, side, b.token, b.first, b.last)
}

// see records that the holder of a lease saw it alive.
func (w *witness) see(owner string, s sighting, now time.Time) {
	at := now.Sub(w.start)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := party{owner, s}
	b := w.beliefs[p]
	if b == nil {
		if w.beliefs == nil {
			w.beliefs = make(map[party]*belief)
		}
		b = &belief{p, at, at}
		w.beliefs[p] = b
	}
	b.first, b.last = min(b.first, at), max(b.last, at)
}

// granted returns how many parties were seen.
func (w *witness) granted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.beliefs)
}

// judge returns the violations of the promises: two holders at a time that exclude each other;
// more places than there are; tokens that do not rise.
func (w *witness) judge() (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byKey := make(map[string][]*belief)
	for _, b := range w.beliefs {
		byKey[b.key] = append(byKey[b.key], b)
	}
	for key, all := range byKey {
		slices.SortFunc(all, func(a, b *belief) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.token, b.token)) })
		for _, what := range slices.Concat(overlaps(all), falls(all)) {
			wrong = append(wrong, key+": "+what)
		}
	}
	return wrong
}

// overlaps compares each belief, at its start, with the beliefs that still last.
func overlaps(all []*belief) (wrong []string) {
	var inside []*belief
	for _, b := range all {
		inside = slices.DeleteFunc(inside, func(in *belief) bool { return in.last <= b.first })
		used := b.weight
		for _, in := range inside {
			if used += in.weight; (b.exclusive || in.exclusive) && !same(in, b) {
				wrong = append(wrong, fmt.Sprintf("%v, and %v", in, b))
			}
		}
		if !b.exclusive && b.limit > 0 && used > b.limit {
			wrong = append(wrong, fmt.Sprintf("%d places are taken when %v", used, b))
		}
		inside = append(inside, b)
	}
	return wrong
}

// falls compares tokens of beliefs that exclude each other, so that their order is the order of
// their grants.
func falls(all []*belief) (wrong []string) {
	var alone, greatest *belief // the greatest token of an exclusive party, of any
	for _, b := range all {
		before := alone
		if b.exclusive {
			before = greatest
		}
		if before != nil && b.token <= before.token && !same(before, b) {
			wrong = append(wrong, fmt.Sprintf("%v, after %v", b, before))
		}
		if b.exclusive && (alone == nil || b.token > alone.token) {
			alone = b
		}
		if greatest == nil || b.token > greatest.token {
			greatest = b
		}
	}
	return wrong
}

// same reports whether two parties are one, before and after a downgrade.
func same(a, b *belief) bool { return a.owner == b.owner && a.token == b.token }
