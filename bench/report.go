package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
)

// table is the outcome of one experiment: a row per contender.
type table struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Columns []column `json:"columns"`
	Rows    []*row   `json:"rows"`
}

// column is one figure. Its target is a bound for our own contenders; 0 is no target.
type column struct {
	Name   string  `json:"name"`
	Digits int     `json:"-"`
	AtMost float64 `json:"atMost,omitempty"`
	// AtLeast is the bound if greater is better.
	AtLeast float64 `json:"atLeast,omitempty"`
	// None means that the target is 0.
	None bool `json:"none,omitempty"`
	// by makes the column a ratio: of the last column that is not one, to the same figure of
	// another contender.
	by reference
	// unit multiplies a ratio; 0 means 1.
	unit float64
	// total means that the figure is the sum of the rounds.
	total bool
	// failed is the figure of a round in which a peer fails; 0 if it has no such figure.
	failed float64
}

type row struct {
	Contender string `json:"contender"`
	Ours      bool   `json:"ours,omitempty"`
	Cells     []cell `json:"cells"`
}

// cell is a figure over all rounds.
type cell struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

func newTable(title string, columns ...column) *table {
	return &table{Title: title, Columns: columns}
}

// failure returns the figures of a contender that fails: one for each column that is not a ratio.
func (t *table) failure() (figures []float64) {
	for _, c := range t.Columns {
		switch {
		case c.by != nil:
		case c.failed == 0:
			figures = append(figures, math.NaN())
		default:
			figures = append(figures, c.failed)
		}
	}
	return figures
}

// add appends a row for each contender: its figures are lists of rounds, one for every measured
// column.
func (t *table) add(all []contender, figures [][][]float64) {
	for i, c := range all {
		r := &row{Contender: c.name, Ours: c.kind == ours}
		last := -1
		for _, col := range t.Columns {
			if col.by == nil {
				last++
				r.Cells = append(r.Cells, col.cell(figures[i][last]))
				continue
			}
			values := make([][]float64, len(all))
			for k := range all {
				values[k] = figures[k][last]
			}
			r.Cells = append(r.Cells, col.cell(ratios(values[i], col.by(all, values, c), max(col.unit, 1))))
		}
		t.Rows = append(t.Rows, r)
	}
}

// join adds the columns of a table with the same rows.
func (t *table) join(o *table) {
	t.Columns = append(t.Columns, o.Columns...)
	for i, r := range o.Rows {
		t.Rows[i].Cells = append(t.Rows[i].Cells, r.Cells...)
	}
}

// cell sums up rounds. Values that could not be measured are omitted.
func (c column) cell(rounds []float64) cell {
	known := make([]float64, 0, len(rounds)) // JSON has no NaN
	for _, v := range rounds {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			known = append(known, v)
		}
	}
	switch {
	case len(known) == 0:
		return cell{0, known}
	case c.total:
		known = []float64{sum(known)}
	}
	return cell{median(known), known}
}

// markdown renders the table: medians with the lowest and the highest round,
// the target below, missed targets in bold.
func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n|  |", t.Title)
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	b.WriteString("\n|---" + strings.Repeat("|--:", len(t.Columns)) + "|\n")
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "| %s |", r.Contender)
		for i, c := range t.Columns {
			fmt.Fprintf(&b, " %s |", r.Cells[i].text(c, r.Ours))
		}
		b.WriteByte('\n')
	}
	b.WriteString("| *target* |")
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %s |", c.target())
	}
	b.WriteByte('\n')
	return b.String()
}

func (c cell) text(col column, ours bool) string {
	if len(c.Rounds) == 0 {
		return "–"
	}
	text := col.format(c.Median)
	if ours && !col.met(c.Median) {
		text = "**" + text + "**"
	}
	low, high := col.format(quantile(c.Rounds, 0)), col.format(quantile(c.Rounds, 1))
	if low != high {
		text += fmt.Sprintf(" <sub>%s–%s</sub>", low, high)
	}
	return text
}

func (c column) format(v float64) string { return fmt.Sprintf("%.*f", c.Digits, v) }

// met compares the rounded value, which readers see, with the target.
func (c column) met(v float64) bool {
	scale := math.Pow10(c.Digits)
	v = math.Round(v*scale) / scale
	switch {
	case c.None:
		return v == 0
	case c.AtMost > 0:
		return v <= c.AtMost
	case c.AtLeast > 0:
		return v >= c.AtLeast
	}
	return true
}

func (c column) target() string {
	switch {
	case c.None:
		return "0"
	case c.AtMost > 0:
		return fmt.Sprintf("≤ %g", c.AtMost)
	case c.AtLeast > 0:
		return fmt.Sprintf("≥ %g", c.AtLeast)
	}
	return ""
}

// report is the content of the JSON file.
type report struct {
	Go      string   `json:"go"`
	Redis   string   `json:"redis"`
	CPUs    int      `json:"cpus"`
	Quick   bool     `json:"quick"`
	Seconds float64  `json:"seconds"`
	Tables  []*table `json:"tables"`
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
