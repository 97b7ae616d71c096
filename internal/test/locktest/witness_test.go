package locktest_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Sighting is what a holder believed at a moment.
type Sighting struct {
	Key       string // without spaces
	Owner     string // one holder's alone, without spaces
	Exclusive bool
	// Weight is what a sharer takes of Limit; a limit of 0 is none.
	Weight, Limit int
	Token         int64
	At            int64 // ns of one clock for all who believe
}

// sighting is a Sighting as a line of text.
const sighting = "%t %s %s %d %d %d %d"

func (s Sighting) String() string {
	return fmt.Sprintf(sighting, s.Exclusive, s.Key, s.Owner, s.Weight, s.Limit, s.Token, s.At)
}

// ParseSighting reads what [Sighting.String] wrote.
func ParseSighting(line string) (s Sighting, err error) {
	_, err = fmt.Sscanf(line, sighting, &s.Exclusive, &s.Key, &s.Owner, &s.Weight, &s.Limit, &s.Token, &s.At)
	return s, err
}

// Witness hears what holders believe and judges them by what the kinds of lock
// promise. It is safe for concurrent use.
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

// belief is the time through which a party held the lock without a doubt: it
// did when it was seen first, and when it was seen last.
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

// See notes a sighting.
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

// Judge returns what contradicts the promises: two who cannot hold a lock at a
// time and did; more places than there are; tokens that do not rise.
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

// overlaps looks, whenever somebody begins to believe, at those who still do.
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

// falls compares tokens of those who cannot hold the lock together, so that the
// order of what they believed is that of their grants.
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

// seen is a party that held a lock from one time to another.
type seen struct {
	owner         string
	exclusive     bool
	weight, limit int
	token         int64
	first, last   int64
}

func judge(parties ...seen) []string {
	var w Witness
	for _, p := range parties {
		for _, at := range []int64{p.first, p.last} {
			w.See(Sighting{Key: "k", Owner: p.owner, Exclusive: p.exclusive, Weight: p.weight, Limit: p.limit, Token: p.token, At: at})
		}
	}
	return w.Judge()
}

func alone(owner string, token, first, last int64) seen {
	return seen{owner, true, 1, 0, token, first, last}
}

func reads(owner string, token, first, last int64) seen {
	return seen{owner, false, 1, 0, token, first, last}
}

func takes(owner string, weight int, token, first, last int64) seen {
	return seen{owner, false, weight, 3, token, first, last}
}

// TestWitness_FindsSeededBugs keeps the judge of the crowds and the soak honest.
func TestWitness_FindsSeededBugs(t *testing.T) {
	for name, bad := range map[string][]seen{
		"two holders":                      {alone("a", 1, 0, 11), alone("b", 2, 10, 20)},
		"a holder within another's time":   {alone("a", 1, 0, 30), alone("b", 2, 10, 20)},
		"a reader beside a writer":         {alone("a", 1, 0, 11), reads("b", 2, 10, 20)},
		"a writer beside the first of two": {reads("a", 1, 0, 30), reads("b", 2, 5, 6), alone("c", 3, 10, 20)},
		"a place beside a mutex":           {takes("a", 1, 1, 0, 11), alone("b", 2, 10, 20)},
		"four places of three":             {takes("a", 2, 1, 0, 30), takes("b", 1, 2, 5, 30), takes("c", 1, 3, 10, 20)},
		"too many after one has left":      {takes("a", 2, 1, 0, 9), takes("b", 2, 2, 9, 30), takes("c", 2, 3, 10, 20)},
		"a token that falls":               {alone("a", 2, 0, 5), alone("b", 1, 10, 20)},
		"a token given twice":              {alone("a", 2, 0, 5), alone("b", 2, 10, 20)},
		"a reader's token that falls":      {alone("a", 2, 0, 5), reads("b", 1, 10, 20)},
		"a writer's below a reader's":      {reads("a", 5, 0, 5), reads("b", 4, 0, 5), alone("c", 4, 10, 20)},
		"one owner, two grants":            {alone("a", 1, 0, 11), alone("a", 2, 10, 20)},
	} {
		if len(judge(bad...)) == 0 {
			t.Errorf("accepts %s", name)
		}
	}
	for name, good := range map[string][]seen{
		"one after the other":            {alone("a", 1, 0, 10), alone("b", 2, 10, 20), reads("c", 3, 20, 30)},
		"readers in any order":           {reads("a", 2, 0, 10), reads("b", 1, 5, 20), reads("c", 3, 6, 7)},
		"re-entry":                       {alone("a", 1, 0, 10), alone("a", 1, 5, 8), alone("b", 2, 10, 20)},
		"downgrade":                      {alone("a", 1, 0, 10), reads("a", 1, 10, 20), reads("b", 2, 11, 20), alone("c", 3, 20, 30)},
		"three places of three":          {takes("a", 2, 1, 0, 30), takes("b", 1, 2, 5, 30)},
		"places that are left and taken": {takes("a", 3, 1, 0, 10), takes("b", 2, 2, 10, 30), takes("c", 1, 3, 11, 20)},
	} {
		if wrong := judge(good...); len(wrong) > 0 {
			t.Errorf("refuses %s: %q", name, wrong)
		}
	}
}

func TestSighting_IsReadAsItWasWritten(t *testing.T) {
	s := Sighting{Key: "a/b", Owner: "p-1.2", Exclusive: true, Weight: 2, Limit: 5, Token: 1 << 52, At: 1 << 60}
	if got, err := ParseSighting(fmt.Sprint(s)); got != s || err != nil {
		t.Errorf("%+v became %+v, %v", s, got, err)
	}
	for _, cut := range []string{"", "true", "true a/b p-1.2 2 5 1"} {
		if got, err := ParseSighting(cut); err == nil {
			t.Errorf("%q was read as %+v", cut, got)
		}
	}
}
