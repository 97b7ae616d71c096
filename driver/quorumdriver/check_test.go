package quorumdriver_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// looked is a node with a Check that returns a fixed report.
type looked struct {
	*memdriver.Driver
	report driver.Report
	err    error
}

func (l *looked) Check(context.Context) (driver.Report, error) { return l.report, l.err }

func node(server, data string) *looked {
	l := &looked{Driver: memdriver.New()}
	l.report.Nodes = []driver.Node{{Name: server + ":6379", Server: server, Data: data}}
	l.report.Add(driver.Warning, "eviction", "of "+server, "", "")
	return l
}

func TestCheck_LooksAtEveryNodeAndComparesThem(t *testing.T) {
	down := node("d", "d")
	down.err = driver.ErrUnavailable
	for name, row := range map[string]struct {
		nodes    []driver.Driver
		severity driver.Severity
		check    string
		text     string
	}{
		"a node's own":    {[]driver.Driver{node("a", "a"), node("b", "b"), node("c", "c")}, driver.Warning, "eviction", "of b"},
		"independent":     {[]driver.Driver{node("a", "a"), node("b", "b"), node("c", "c")}, driver.Good, "independence", "no server in common"},
		"one server":      {[]driver.Driver{node("a", "a"), node("a", "a"), node("c", "c")}, driver.Unsafe, "independence", "node 1 and node 2"},
		"a replica":       {[]driver.Driver{node("a", "a"), node("b", "b"), node("c", "b")}, driver.Unsafe, "independence", "copies"},
		"a minority away": {[]driver.Driver{node("a", "a"), down, node("c", "c")}, driver.Warning, "reach", "does not answer"},
		"an even number":  {[]driver.Driver{node("a", "a"), node("b", "b")}, driver.Notice, "quorum", "2 nodes"},
		"one alone":       {[]driver.Driver{node("a", "a")}, driver.Warning, "quorum", "one node"},
		"untold":          {[]driver.Driver{node("a", "a"), node("b", "b"), memdriver.New()}, driver.Notice, "independence", "node 3"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := open(t, row.nodes).s.Check(t.Context())
			noError(t, err)
			for _, f := range report.About(row.check) {
				if f.Severity == row.severity && strings.Contains(f.What, row.text) {
					return
				}
			}
			t.Errorf("no finding of severity %v with %q: %+v", row.severity, row.text, report.Findings)
		})
	}
}

func TestCheck_FailsWithoutAMajority(t *testing.T) {
	a, b := node("a", "a"), node("b", "b")
	a.err, b.err = driver.ErrUnavailable, driver.ErrUnavailable
	_, err := open(t, []driver.Driver{a, b, node("c", "c")}).s.Check(t.Context())
	if !errors.Is(err, driver.ErrNoQuorum) || !strings.Contains(err.Error(), "node 1") {
		t.Errorf("%v, want ErrNoQuorum that names the nodes", err)
	}
}
