package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// measurement measures the i-th contender in one round. It returns a figure for each column that is not
// a ratio. NaN is not counted. The key is new.
type measurement func(i int, c contender, key string) []float64

// compare makes the contenders take turns, round by round, and adds their rows to the table. A peer that
// fails is left out of the round. A failure of another contender ends the experiment.
func (b *bench) compare(t *table, all []contender, rounds int, measure measurement) *table {
	figures := make([][][]float64, len(all))
	for i := range figures {
		figures[i] = make([][]float64, len(t.failure()))
	}
	for range rounds {
		for i, c := range all {
			b.made++
			values := t.failure()
			err := b.attempt(func() { values = measure(i, c, fmt.Sprintf("bench-%d", b.made)) })
			if err != nil && c.kind != peer {
				check(fmt.Errorf("%s: %w", c.name, err))
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s failed: %v\n", c.name, err)
			}
			for j, v := range values {
				figures[i][j] = append(figures[i][j], v)
			}
		}
	}
	t.add(all, figures)
	return t
}

// compareOn is compare on one process of each contender. A first round warms up, and is not
// counted.
func (b *bench) compareOn(
	t *table, all []contender, procs []process, rounds int, measure func(c contender, p process, key string) []float64,
) *table {
	on := func(i int, c contender, key string) []float64 { return measure(c, procs[i], key) }
	b.compare(newTable("", t.Columns...), all, 1, on)
	return b.compare(t, all, rounds, on)
}

// compareOpen is compareOn for processes with the given settings.
func (b *bench) compareOpen(
	t *table, all []contender, s settings, measure func(c contender, p process, key string) []float64,
) *table {
	return b.compareOn(t, all, b.openAll(all, s), b.rounds, measure)
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

// ratios divides round by round, so that an influence that slowed down a whole round
// cancels out.
func ratios(values, by []float64, unit float64) []float64 {
	out := make([]float64, 0, len(values))
	for i := range min(len(values), len(by)) {
		out = append(out, unit*values[i]/by[i])
	}
	return out
}

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

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
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
