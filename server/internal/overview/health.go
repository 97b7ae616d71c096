package overview

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Vitals describe the state of the store.
type Vitals struct {
	// Store is its address, without secrets, and Since when the service started.
	Store string    `json:"store"`
	Since time.Time `json:"since"`
	// RoundTrip is the time of the store's last answer. Failing is true if the last request
	// failed or was not made, and Busy too in the second case.
	RoundTrip int64 `json:"roundTripUs"`
	Failing   bool  `json:"failing"`
	Busy      bool  `json:"busy,omitempty"`
	// Checked is when Findings and Nodes were asked for; absent if the store has no checks.
	Checked  time.Time `json:"checked,omitzero"`
	Problem  string    `json:"problem,omitempty"`
	Findings []Finding `json:"findings"`
	Nodes    []Node    `json:"nodes"`
}

// Finding is a finding of [driver.Report].
type Finding struct {
	Severity string `json:"severity"`
	Check    string `json:"check"`
	Subject  string `json:"subject,omitempty"`
	What     string `json:"what"`
	Why      string `json:"why,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// Node is a server behind a store.
type Node struct {
	Name   string `json:"name"`
	Server string `json:"server,omitempty"`
}

// check asks the store for conditions that make its locks unsafe.
func check(ctx context.Context, store driver.Driver) (driver.Report, error) {
	checker, ok := driver.As[driver.Checker](store)
	if !ok {
		return driver.Report{}, errors.ErrUnsupported
	}
	return checker.Check(ctx)
}

// Vitals returns the state of the store, asking it if the last answer is not fresh.
func (o *Overview) Vitals(ctx context.Context) Vitals {
	v := Vitals{Findings: []Finding{}, Nodes: []Node{}}
	trip := o.trips.get(ctx, "leasehold/overview")
	v.RoundTrip, v.Failing, v.Busy = trip.v.Microseconds(), failed(trip.err), errors.Is(trip.err, ErrBusy)
	report := o.reports.get(ctx, "")
	v.Checked = report.at
	switch {
	case v.Busy:
		v.Problem = ErrBusy.Error()
	case failed(report.err):
		v.Problem = "the check for conditions that make locks unsafe has failed"
	case v.Failing:
		v.Problem = "the store does not answer"
	}
	for _, f := range report.v.Findings {
		v.Findings = append(v.Findings, Finding{f.Severity.String(), f.Check, f.Subject, f.What, f.Why, f.Remedy})
	}
	for _, n := range report.v.Nodes {
		v.Nodes = append(v.Nodes, Node{n.Name, n.Server})
	}
	return v
}

func failed(err error) bool {
	return err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, driver.ErrMismatch)
}
