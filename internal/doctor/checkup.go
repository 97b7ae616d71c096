package doctor

import "github.com/leasehold-go/leasehold/driver"

// Checkup collects the findings about one store.
type Checkup struct {
	driver.Report
	// Subject is the examined server, if there are several.
	Subject string
}

// Row is a row of the table of one check: a condition, and the finding if it is true.
type Row struct {
	when    bool
	finding driver.Finding
}

// If returns the row of a state that deserves attention.
//
//go:noinline
func If(when bool, severity driver.Severity, what, why, remedy string) Row {
	return Row{when, driver.Finding{Severity: severity, What: what, Why: why, Remedy: remedy}}
}

// Good returns the last row of a table: the state is good.
func Good(what string) Row { return If(true, driver.Good, what, "", "") }

// Judge adds the finding of the first row whose condition is true, if there is one.
func (c *Checkup) Judge(check string, rows ...Row) {
	for _, r := range rows {
		if r.when {
			r.finding.Check, r.finding.Subject = check, c.Subject
			c.Findings = append(c.Findings, r.finding)
			return
		}
	}
}

// Found adds a finding.
func (c *Checkup) Found(severity driver.Severity, check, what, why, remedy string) {
	c.Judge(check, If(true, severity, what, why, remedy))
}
