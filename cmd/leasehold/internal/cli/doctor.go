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

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// codeUnsafe is the exit code of doctor if a finding makes locks unsafe.
const codeUnsafe = 1

func newDoctor(g *global) *cobra.Command {
	var ttl duration
	cmd := &cobra.Command{
		Use:   "doctor [flags] [URL...]",
		Short: "Check whether the locks of a store are safe",
		Long: strings.TrimSpace(`
Doctor checks the store: the kind and the settings of the server, the rights of the
user, the clocks, and the time of a renewal in relation to the time to live of a
lease. It takes a lock with a random name and gives it back, and changes nothing else.

Several URLs are checked as the nodes of a quorum, which have to fail independently
of each other.

Each finding is a line: the state, its meaning, and the remedy. The exit code is 1 if
a finding makes locks unsafe.
`),
		Example: `  leasehold doctor --store redis://db1:6379
  leasehold doctor --ttl 10s redis://db1 redis://db2 redis://db3
  leasehold doctor --json | jq '.findings[] | select(.severity == "unsafe")'`,
		RunE: func(cmd *cobra.Command, urls []string) error {
			return g.doctor(cmd, urls, time.Duration(ttl))
		},
	}
	durationVar(cmd.Flags(), &ttl, "ttl", 30*time.Second, "time to live to test with")
	return cmd
}

// diagnosis is a finding about a store, as JSON.
type diagnosis struct {
	Severity string `json:"severity"`        // ok, notice, warning or unsafe
	Store    string `json:"store,omitempty"` // redacted; empty if there is only one
	Check    string `json:"check"`
	Subject  string `json:"subject,omitempty"`
	What     string `json:"what"`
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	severity driver.Severity
}

func diagnoses(store string, findings ...driver.Finding) (all []diagnosis) {
	for _, f := range findings {
		all = append(all, diagnosis{f.Severity.String(), store, f.Check, f.Subject, f.What, f.Why, f.Remedy, f.Severity})
	}
	return all
}

func (g *global) doctor(cmd *cobra.Command, urls []string, ttl time.Duration) error {
	if len(urls) > 0 && g.store != "" {
		return usage("name stores as arguments or with --store, not both")
	}
	all, err := g.examineAll(cmd.Context(), urls, ttl)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b diagnosis) int { return cmp.Compare(b.severity, a.severity) })
	safe := len(all) == 0 || all[0].severity < driver.Unsafe
	if g.json {
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetIndent("", "  ")
		err = out.Encode(struct {
			Safe     bool        `json:"safe"`
			Findings []diagnosis `json:"findings"`
		}{safe, append([]diagnosis{}, all...)})
	} else {
		g.printFindings(cmd.OutOrStdout(), all)
	}
	if err == nil && !safe {
		err = &exitError{code: codeUnsafe}
	}
	return err
}

// examine checks the store rawURL, or the store of the flags if it is empty.
func (g *global) examine(ctx context.Context, rawURL string, ttl time.Duration) (name string, report driver.Report, err error) {
	g.store = cmp.Or(rawURL, g.store)
	if rawURL, err = g.storeURL(); err != nil {
		return "", report, err
	}
	d, err := stores.Open(rawURL)
	if err == nil {
		defer d.Close()
		report, err = doctor.Examine(ctx, d, ttl)
	}
	return storeurl.Redact(rawURL), report, err
}

// examineAll checks one store, or several stores that are meant to fail independently. A
// minority of several stores may be unreachable.
func (g *global) examineAll(ctx context.Context, urls []string, ttl time.Duration) (all []diagnosis, err error) {
	if len(urls) < 2 {
		_, report, err := g.examine(ctx, append(urls, "")[0], ttl)
		return diagnoses("", report.Findings...), err
	}
	var answered []doctor.Store
	names, errs := make([]string, len(urls)), make([]error, len(urls))
	for i, u := range urls {
		var report driver.Report
		names[i], report, errs[i] = g.examine(ctx, u, ttl)
		switch {
		case ExitCode(classify(errs[i])) == codeUsage:
			return nil, errs[i]
		case errs[i] == nil:
			all = append(all, diagnoses(names[i], report.Findings...)...)
			answered = append(answered, doctor.Store{Name: names[i], Nodes: report.Nodes})
		}
	}
	silent := driver.Finding{Severity: driver.Warning, Check: "reach", Why: "it has no vote", Remedy: "bring it back"}
	if 2*len(answered) <= len(urls) {
		silent.Severity, silent.Why = driver.Unsafe, "without a majority no lock can be had"
	}
	for i, err := range errs {
		if err != nil {
			silent.What = "does not answer: " + err.Error()
			all = append(all, diagnoses(names[i], silent)...)
		}
	}
	return append(all, diagnoses("", doctor.Independent(answered)...)...), nil
}

// printFindings prints a line for each finding, without empty columns. Good findings that differ
// only in the store or the node share a line.
func (g *global) printFindings(w io.Writer, all []diagnosis) {
	count := make(map[driver.Severity]int)
	nodes := make(map[string]int) // with a good finding
	for _, d := range all {
		if count[d.severity]++; d.severity == driver.Good {
			nodes[d.Check+d.What]++
		}
	}
	var rows [][]string
	which := storeurl.Redact(g.used) + ": "
	for _, d := range all {
		if d.Store != "" {
			which = ""
		}
		if n := nodes[d.Check+d.What]; d.severity == driver.Good && n != 1 {
			if n == 0 {
				continue
			}
			nodes[d.Check+d.What] = 0
			d.Store, d.Subject = "", fmt.Sprintf("%d nodes", n)
		}
		text := d.What
		if d.Why != "" {
			text += ": " + d.Why
		}
		if d.Remedy != "" {
			text += "; " + d.Remedy
		}
		rows = append(rows, []string{d.Severity, d.Store, d.Check, d.Subject, text})
	}
	table(w, rows)
	fmt.Fprintf(w, "\n%s%s\n", which, verdict(count[driver.Unsafe], count[driver.Warning]))
}

func verdict(unsafe, warnings int) string {
	switch {
	case unsafe > 0:
		return fmt.Sprintf("locks are unsafe for %s", plural(unsafe, "reason"))
	case warnings > 0:
		return fmt.Sprintf("nothing makes locks unsafe, with %s", plural(warnings, "warning"))
	}
	return "nothing makes locks unsafe"
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
