package checker

import (
	"cmp"
	"slices"
)

// shadows are spans of time, of which more than one may cover the same moment
// before they are merged.
type shadows struct{ spans []span }

type span struct{ from, to int64 }

func (s *shadows) add(from, to int64) { s.spans = append(s.spans, span{from, max(from+1, to)}) }

// merge makes the spans disjoint and sorts them.
func (s *shadows) merge() {
	slices.SortFunc(s.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := s.spans[:0]
	for _, next := range s.spans {
		if n := len(merged); n > 0 && next.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, next.to)
			continue
		}
		merged = append(merged, next)
	}
	s.spans = merged
}

// overlap returns how much of the time between from and to is covered.
func (s *shadows) overlap(from, to int64) (sum int64) {
	i, _ := slices.BinarySearchFunc(s.spans, from, func(a span, at int64) int { return cmp.Compare(a.to, at) })
	for ; i < len(s.spans) && s.spans[i].from < to; i++ {
		sum += max(min(to, s.spans[i].to)-max(from, s.spans[i].from), 0)
	}
	return sum
}

// count returns how many spans touch the time between from and to.
func (s *shadows) count(from, to int64) (n int64) {
	i, _ := slices.BinarySearchFunc(s.spans, from, func(a span, at int64) int { return cmp.Compare(a.to, at) })
	for ; i < len(s.spans) && s.spans[i].from < to; i++ {
		n++
	}
	return n
}
