package locktest_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Sighting is a lease that its holder saw alive at a moment.
type Sighting struct {
	Key       string // without spaces
	Owner     string // unique to a holder, without spaces
	Exclusive bool
	// Weight is the part of Limit that a sharer takes; a limit of 0 means unlimited.
	Weight, Limit int
	Token         int64
	At            int64 // ns of one clock for all holders
}

// Witness collects the sightings of holders and compares them with the promises of the kinds of
// locks. It is safe for concurrent use.
type Witness struct {
	mu      sync.Mutex
	beliefs map[party]*belief
}

// party is a holder in one role. All holds of a re-entrant owner are one party.
type party struct {
	key, owner string
	exclusive  bool
	token      int64
}

// belief is the time through which a party certainly held the lock: from its first sighting to
// its last.
type belief struct {
	party
	weight, limit int
	first, last   int64
}

func (b *belief) String() string {
	side := fmt.Sprintf("takes %d of %d", b.weight, b.limit)
	if b.exclusive {
		side = "is alone"
	}
	return fmt.Sprintf("%s %s with token %d from %d to %d", b.owner, side, b.token, b.first, b.last)
}

// See records a sighting.
func (w *Witness) See(s Sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := party{s.Key, s.Owner, s.Exclusive, s.Token}
	b := w.beliefs[p]
	if b == nil {
		if w.beliefs == nil {
			w.beliefs = make(map[party]*belief)
		}
		b = &belief{party: p, weight: s.Weight, limit: s.Limit, first: s.At, last: s.At}
		w.beliefs[p] = b
	}
	b.first, b.last = min(b.first, s.At), max(b.last, s.At)
}

// Grants returns how many parties were seen, by key.
func (w *Witness) Grants() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := make(map[string]int)
	for p := range w.beliefs {
		n[p.key]++
	}
	return n
}

// granted returns how many parties were seen.
func (w *Witness) granted() (sum int) {
	for _, n := range w.Grants() {
		sum += n
	}
	return sum
}

// Judge returns the violations of the promises: two holders at a time that exclude each other;
// more places than there are; tokens that do not rise.
func (w *Witness) Judge() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	byKey := make(map[string][]*belief)
	for _, b := range w.beliefs {
		byKey[b.key] = append(byKey[b.key], b)
	}
	var wrong []string
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
