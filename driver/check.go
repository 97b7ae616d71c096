package driver

import (
	"context"
	"slices"
)

// Severity is the importance of a [Finding].
type Severity uint8

const (
	// Good: as it should be.
	Good Severity = iota
	// Notice: for information; no action is needed.
	Notice
	// Warning: locks are less available, slower or less safe than they could be.
	Warning
	// Unsafe: two may hold one lock, or no lock can be had.
	Unsafe
)

// String returns the word that people see.
func (s Severity) String() string {
	switch s {
	case Good:
		return "ok"
	case Notice:
		return "notice"
	case Warning:
		return "warning"
	}
	return "unsafe"
}

// Finding is one result of a check.
type Finding struct {
	Severity Severity
	// Check is a fixed word for the subject of the check, for example "eviction".
	Check string
	// Subject is the server, directory or node that is meant; empty if there is
	// only one.
	Subject string
	// What describes the state, and Why its meaning for locks, which is empty if the
	// state is good. Together they are one sentence.
	What, Why string
	// Remedy describes how to correct it, or is empty.
	Remedy string
}

// Node is one of the servers that keep the data of a store.
type Node struct {
	// Name is where it is, as host:port.
	Name string
	// Server identifies the running server, and Data its data: a replica's Data is that
	// of its primary. Empty if unknown.
	Server, Data string
}

// Report is the result of a check.
type Report struct {
	Findings []Finding
	// Nodes are the servers behind the store, so that stores which are to fail
	// independently can be compared.
	Nodes []Node
}

// Add appends a finding.
//
//go:noinline
func (r *Report) Add(severity Severity, check, what, why, remedy string) {
	r.Findings = append(r.Findings, Finding{Severity: severity, Check: check, What: what, Why: why, Remedy: remedy})
}

// Worst returns the severity of the worst finding.
func (r Report) Worst() (worst Severity) {
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// About returns the findings of one check.
func (r Report) About(check string) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Check != check })
}

// Checker is implemented by stores that can detect conditions that make locks unsafe.
type Checker interface {
	// Check examines the present state of the store without changing it, and takes
	// seconds at most. The error means that it could not be examined; a check that was
	// only possible in part is reported as a finding.
	Check(ctx context.Context) (Report, error)
}
