package quorumdriver

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It checks every node that is a [driver.Checker], and
// compares the nodes, because they have to fail independently. The error matches
// [driver.ErrNoQuorum] if a majority of them does not answer.
func (s *Driver) Check(ctx context.Context) (driver.Report, error) {
	reports, errs := make([]driver.Report, len(s.nodes)), make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		if c, ok := driver.As[driver.Checker](n.Driver); ok {
			all.Go(func() { reports[i], errs[i] = c.Check(ctx) })
		}
	}
	all.Wait()

	var report driver.Report
	var answered []doctor.Store
	var silent []string
	for i, n := range s.nodes {
		if errs[i] != nil {
			silent = append(silent, n.named(errs[i]).Error())
			report.Findings = append(report.Findings, driver.Finding{
				Severity: driver.Warning, Check: "reach", Subject: n.name,
				What: "does not answer: " + errs[i].Error(), Why: "it has no vote", Remedy: "bring it back",
			})
			continue
		}
		for _, f := range reports[i].Findings {
			f.Subject = strings.TrimSpace(n.name + " " + f.Subject)
			report.Findings = append(report.Findings, f)
		}
		report.Nodes = append(report.Nodes, reports[i].Nodes...)
		answered = append(answered, doctor.Store{Name: n.name, Nodes: reports[i].Nodes})
	}
	if len(answered) < s.need {
		return report, fmt.Errorf("%d of %d nodes answer (%s): %w: %w", len(answered), len(s.nodes), strings.Join(silent, "; "), driver.ErrNoQuorum, driver.ErrUnavailable)
	}
	report.Findings = append(report.Findings, doctor.Independent(answered)...)
	if n := len(s.nodes); n%2 == 0 {
		report.Add(driver.Notice, "quorum", fmt.Sprintf("there are %d nodes", n), fmt.Sprintf("they survive no more losses than %d do", n-1), "")
	} else if n == 1 {
		report.Add(driver.Warning, "quorum", "there is only one node", "losing it loses all locks", "name at least three")
	}
	return report, nil
}
