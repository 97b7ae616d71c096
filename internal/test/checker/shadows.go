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

// within returns the spans that touch the time between from and to.
func (s *shadows) within(from, to int64) []span {
	i, _ := slices.BinarySearchFunc(s.spans, from, func(a span, at int64) int { return cmp.Compare(a.to, at) })
	n := i
	for n < len(s.spans) && s.spans[n].from < to {
		n++
	}
	return slices.Clip(s.spans[i:n])
}

// overlap returns how much of the time between from and to is covered.
func (s *shadows) overlap(from, to int64) (sum int64) {
	for _, span := range s.within(from, to) {
		sum += max(min(to, span.to)-max(from, span.from), 0)
	}
	return sum
}

// count returns how many spans touch the time between from and to.
func (s *shadows) count(from, to int64) int64 { return int64(len(s.within(from, to))) }
