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
	squares := 0.0
	for _, n := range counts {
		squares += n * n
	}
	return sum(counts) * sum(counts) / (float64(len(counts)) * squares)
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
func ratios(values, by []float64, unit float64) []float64 {
	out := make([]float64, 0, len(values))
	for i := range min(len(values), len(by)) {
		out = append(out, unit*values[i]/by[i])
	}
	return out
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// reference returns the values to which the values of c are compared.
type reference func(all []contender, values [][]float64, c contender) []float64

// least is the limit: the bare client with the smallest median, if one takes part.
func least(all []contender, values [][]float64, _ contender) []float64 {
	return best(all, values, 1, func(o contender) bool { return o.kind == limit })
}

// most is the limit if greater is better.
func most(all []contender, values [][]float64, _ contender) []float64 {
	return best(all, values, -1, func(o contender) bool { return o.kind == limit })
}

// bare is the bare client that c uses.
func bare(all []contender, values [][]float64, c contender) []float64 {
	return best(all, values, 1, func(o contender) bool { return o.kind == limit && o.client == c.client })
}

// fastestEtcd is the way to use etcd that takes most locks.
func fastestEtcd(all []contender, values [][]float64, _ contender) []float64 {
	return best(all, values, -1, func(o contender) bool { return o.client == etcdClient })
}

// best returns the values of the contender with the smallest median, or with the greatest if sign is
// negative. It considers only contenders that fit, and returns nil if there are none.
func best(all []contender, values [][]float64, sign float64, fits func(contender) bool) []float64 {
	var found []float64
	for i, c := range all {
		if fits(c) && (found == nil || sign*median(values[i]) < sign*median(found)) {
			found = values[i]
		}
	}
	return found
}
