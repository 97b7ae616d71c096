package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
)

// measurement measures the i-th contender in one round. It returns a figure for each column that is not
// a ratio, also with an error, or nil. NaN is not counted. The key is new.
type measurement func(i int, c contender, key string) ([]float64, error)

// compare makes the contenders take turns, round by round, and adds their rows to the table.
func (b *bench) compare(t *table, all []contender, rounds int, measure measurement) (*table, error) {
	figures := make([][][]float64, len(all))
	for i := range figures {
		figures[i] = make([][]float64, t.measured())
	}
	for range rounds {
		for i, c := range all {
			b.made++
			values, err := measure(i, c, fmt.Sprintf("bench-%d", b.made))
			if err != nil {
				if err := excuse(c, err); err != nil {
					return nil, err
				}
			}
			if values == nil {
				values = slices.Repeat([]float64{math.NaN()}, len(figures[i]))
			}
			if len(values) != len(figures[i]) {
				return nil, fmt.Errorf("%s: %d figures for %d columns", c.name, len(values), len(figures[i]))
			}
			for j, v := range values {
				figures[i][j] = append(figures[i][j], v)
			}
		}
	}
	t.add(all, figures)
	return t, nil
}

// compareOn is compare on one process of each contender. A first round warms up, and is not
// counted.
func (b *bench) compareOn(
	t *table, all []contender, procs []process, rounds int, measure func(c contender, p process, key string) ([]float64, error),
) (*table, error) {
	on := func(i int, c contender, key string) ([]float64, error) { return measure(c, procs[i], key) }
	if _, err := b.compare(newTable("", t.Columns...), all, 1, on); err != nil {
		return nil, err
	}
	return b.compare(t, all, rounds, on)
}

// compareOpen is compareOn for processes with the given settings.
func (b *bench) compareOpen(
	t *table, all []contender, s settings, measure func(c contender, p process, key string) ([]float64, error),
) (*table, error) {
	procs, err := b.openAll(all, s)
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	return b.compareOn(t, all, procs, b.rounds, measure)
}

// excuse reports the failure of a peer, and leaves out its figures. A failure of a contender of
// ours ends the experiment.
func excuse(c contender, err error) error {
	if c.kind != peer {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	fmt.Fprintf(os.Stderr, "bench: %s failed: %v\n", c.name, err)
	return nil
}

// open opens one process of c on the server that it needs.
func (b *bench) open(c contender, s settings) (process, error) {
	switch c.client {
	case etcdClient:
		return c.open(b.etcdServer().addr, s)
	case postgresClient:
		return c.open(b.postgresServer().URL(), s)
	}
	return c.open(b.srv.Addr(), s)
}

// openAll opens one process of every contender.
func (b *bench) openAll(all []contender, s settings) ([]process, error) {
	procs := make([]process, 0, len(all))
	for _, c := range all {
		p, err := b.open(c, s)
		if err != nil {
			closeAll(procs)
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		procs = append(procs, p)
	}
	return procs, nil
}

func closeAll(procs []process) {
	for _, p := range procs {
		_ = p.Close()
	}
}

func lockOnce(ctx context.Context, p process, key string) error {
	h, err := p.Lock(ctx, key)
	if err != nil {
		return err
	}
	return h.Release()
}
