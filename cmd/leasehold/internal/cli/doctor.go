package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// codeUnsafe is the exit code of doctor if a finding makes locks unsafe.
const codeUnsafe = 1

func newDoctor(g *global) *cobra.Command {
	ttl := duration(30 * time.Second)
	cmd := &cobra.Command{
		Use:   "doctor [flags] [URL...]",
		Short: "Look for what makes the locks of a store unsafe",
		Long: strings.TrimSpace(`
Doctor looks at the store: what kind of server it is and how it is set up, whether
the user has the rights that are needed, how the clocks go, how long a renewal takes
beside how long a lease lasts. It takes a lock of a name of its own and gives it
back, and changes nothing else.

Several URLs are looked at as the nodes of a quorum, which have to fail
independently of each other.

Every finding is a line: how it is, what that means, and what to do. The exit code
is 1 if one of them makes locks unsafe.
`),
		Example: `  leasehold doctor --store redis://db1:6379
  leasehold doctor --ttl 10s redis://db1 redis://db2 redis://db3
  leasehold doctor --json | jq '.findings[] | select(.severity == "unsafe")'`,
		RunE: func(cmd *cobra.Command, urls []string) error {
			lasts := time.Duration(ttl)
			if lasts < leasehold.MinTTL || lasts > leasehold.MaxTTL {
				return usage("TTL %v is not between %v and %v", lasts, leasehold.MinTTL, leasehold.MaxTTL)
			}
			return classify(g.doctor(cmd, urls, lasts))
		},
	}
	cmd.Flags().Var(&ttl, "ttl", "how long the leases last that the store is to keep")
	return cmd
}

// diagnosis is a finding and its store.
type diagnosis struct {
	store string // redacted; empty if there is only one
	driver.Finding
}

func (g *global) doctor(cmd *cobra.Command, urls []string, ttl time.Duration) error {
	if len(urls) > 0 && g.store != "" {
		return usage("name stores as arguments or with --store, not both")
	}
	var all []*diagnosis
	var err error
	switch len(urls) {
	case 0:
		all, err = g.examineOne(cmd.Context(), ttl)
	case 1:
		g.store = urls[0]
		all, err = g.examineOne(cmd.Context(), ttl)
	default:
		all, err = g.examineMany(cmd.Context(), urls, ttl)
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b *diagnosis) int { return cmp.Compare(b.Severity, a.Severity) })
	safe := len(all) == 0 || all[0].Severity < driver.Unsafe
	if g.json {
		err = printReport(cmd.OutOrStdout(), all, safe)
	} else {
		g.printFindings(cmd.OutOrStdout(), all)
	}
	if err == nil && !safe {
		err = &exitError{code: codeUnsafe}
	}
	return err
}

// examineOne checks the store that the flags name.
func (g *global) examineOne(ctx context.Context, ttl time.Duration) ([]*diagnosis, error) {
	rawURL, err := g.storeURL()
	if err != nil {
		return nil, err
	}
	report, err := examine(ctx, rawURL, ttl)
	return diagnoses("", report.Findings), err
}

func examine(ctx context.Context, rawURL string, ttl time.Duration) (driver.Report, error) {
	d, err := stores.Open(rawURL)
	if err != nil {
		return driver.Report{}, err
	}
	defer d.Close()
	return doctor.Examine(ctx, d, ttl)
}

// examineMany checks stores that are meant to fail independently. A minority of them may
// be unreachable.
func (g *global) examineMany(ctx context.Context, urls []string, ttl time.Duration) (all []*diagnosis, err error) {
	var answered []doctor.Store
	var silent []*diagnosis
	for _, u := range urls {
		g.store = u
		rawURL, err := g.storeURL()
		if err != nil {
			return nil, err
		}
		name := storeurl.Redact(rawURL)
		report, err := examine(ctx, rawURL, ttl)
		if codeOf(err) == codeUsage {
			return nil, err
		}
		if err != nil {
			silent = append(silent, &diagnosis{name, driver.Finding{Check: "reach", What: "does not answer: " + err.Error()}})
			continue
		}
		all = append(all, diagnoses(name, report.Findings)...)
		answered = append(answered, doctor.Store{Name: name, Nodes: report.Nodes})
	}
	for _, d := range silent {
		d.Severity, d.Why, d.Remedy = driver.Warning, "it has no vote", "bring it back"
		if 2*len(answered) <= len(urls) {
			d.Severity, d.Why = driver.Unsafe, "without a majority no lock can be had"
		}
		all = append(all, d)
	}
	return append(all, diagnoses("", doctor.Independent(answered))...), nil
}

func diagnoses(store string, findings []driver.Finding) (all []*diagnosis) {
	for _, f := range findings {
		all = append(all, &diagnosis{store, f})
	}
	return all
}

// printFindings prints a line for each finding, the most severe first, without empty
// columns.
func (g *global) printFindings(w io.Writer, all []*diagnosis) {
	count := make(map[driver.Severity]int)
	rows := make([][]string, 0, len(all))
	for _, d := range all {
		count[d.Severity]++
		rows = append(rows, []string{d.Severity.String(), d.store, d.Check, d.Subject, sentence(d.Finding)})
	}
	table(w, withoutEmpty(rows))
	which := ""
	if !slices.ContainsFunc(all, func(d *diagnosis) bool { return d.store != "" }) {
		which = storeurl.Redact(g.used) + ": "
	}
	fmt.Fprintf(w, "\n%s%s\n", which, verdict(count[driver.Unsafe], count[driver.Warning]))
}

func verdict(unsafe, warnings int) string {
	switch {
	case unsafe > 0:
		return fmt.Sprintf("locks are unsafe for %d %s", unsafe, plural(unsafe, "reason"))
	case warnings > 0:
		return fmt.Sprintf("nothing makes locks unsafe, with %d %s", warnings, plural(warnings, "warning"))
	}
	return "nothing makes locks unsafe"
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// sentence describes a finding.
func sentence(f driver.Finding) string {
	text := f.What
	if f.Why != "" {
		text += ": " + f.Why
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// withoutEmpty removes columns whose cells are all empty.
func withoutEmpty(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for column := range 5 {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[column] != "" }) {
			continue
		}
		for i, row := range rows {
			out[i] = append(out[i], row[column])
		}
	}
	return out
}

// reportView is the result of doctor as JSON.
type reportView struct {
	Safe     bool          `json:"safe"`
	Findings []findingView `json:"findings"`
}

type findingView struct {
	Severity string `json:"severity"` // ok, notice, warning or unsafe
	Store    string `json:"store,omitempty"`
	Check    string `json:"check"`
	Subject  string `json:"subject,omitempty"`
	What     string `json:"what"`
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

func printReport(w io.Writer, all []*diagnosis, safe bool) error {
	view := reportView{Safe: safe, Findings: []findingView{}}
	for _, d := range all {
		view.Findings = append(view.Findings, findingView{
			Severity: d.Severity.String(), Store: d.store, Check: d.Check, Subject: d.Subject, What: d.What, Why: d.Why, Remedy: d.Remedy,
		})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(view)
}
