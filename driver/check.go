package driver

import (
	"context"
	"slices"
)

// Severity says how much a [Finding] matters.
type Severity uint8

const (
	// Good: as it should be.
	Good Severity = iota
	// Notice: good to know, nothing to be done.
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

// Finding is one thing that was looked at.
type Finding struct {
	Severity Severity
	// Check is a word for what was looked at that does not change, as "eviction".
	Check string
	// Subject is the server, directory or node that is meant; empty if there is
	// only one.
	Subject string
	// What says how it is, and Why what that means for locks, which is empty if
	// it is good. Together they are one sentence.
	What, Why string
	// Remedy says what to do, empty if there is nothing to be done.
	Remedy string
}

// Node is one of the servers that keep the data of a store.
type Node struct {
	// Name is where it is, as host:port.
	Name string
	// Server identifies the running server, and Data what it keeps a copy of:
	// a replica's is its primary's. Empty if unknown.
	Server, Data string
}

// Report is what a store was found to be.
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

// Checker is implemented by stores that can tell what makes locks in them unsafe.
type Checker interface {
	// Check looks at the store as it is now, changing nothing, and takes
	// seconds at most. The error says that it could not be looked at; a check that
	// could be made only in part is reported as a finding.
	Check(ctx context.Context) (Report, error)
}
