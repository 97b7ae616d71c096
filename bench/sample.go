package main

import (
	"math"
	"slices"
	"time"
)

// median returns the middle of the values, NaN if there are no values.
func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the value below which the given part of the values lies.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := part * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// jain is Jain's index of fairness: 1 if all got the same, 1/n if one got all.
func jain(counts []float64) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += n
		squares += n * n
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(counts)) * squares)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// each converts durations with micros or millis.
func each(took []time.Duration, unit func(time.Duration) float64) []float64 {
	out := make([]float64, len(took))
	for i, d := range took {
		out[i] = unit(d)
	}
	return out
}

// ratios divides round by round, so that an influence that slowed down a whole round
// cancels out.
func ratios(values, by []float64) []float64 {
	out := make([]float64, 0, len(values))
	for i := range min(len(values), len(by)) {
		out = append(out, values[i]/by[i])
	}
	return out
}

// best returns the limit, if one takes part: the values of the bare client whose median is the
// smallest, or the greatest if sign is negative.
func best(all []contender, values [][]float64, sign float64) []float64 {
	var found []float64
	for i, c := range all {
		if c.kind == limit && (found == nil || sign*median(values[i]) < sign*median(found)) {
			found = values[i]
		}
	}
	return found
}
