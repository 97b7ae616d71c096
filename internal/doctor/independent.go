package doctor

import (
	"fmt"
	"net"
	"slices"

	"github.com/leasehold-go/leasehold/driver"
)

// Store is one of several stores that must fail independently.
type Store struct {
	Name  string
	Nodes []driver.Node
}

// Independent compares the servers behind stores, pair by pair. Two stores that share a server
// fail together.
func Independent(stores []Store) (findings []driver.Finding) {
	for i, a := range stores {
		for _, b := range stores[i+1:] {
			if f, found := common(a, b); found {
				findings = append(findings, f)
			}
		}
	}
	for _, s := range stores {
		if len(stores) > 1 && !slices.ContainsFunc(s.Nodes, func(n driver.Node) bool { return n.Server != "" }) {
			findings = append(findings, driver.Finding{
				Severity: driver.Notice, Check: "independence", What: s.Name + " does not tell which server it is",
				Why: "it may be another of the same",
			})
		}
	}
	if len(findings) == 0 && len(stores) > 1 {
		findings = append(findings, driver.Finding{
			Severity: driver.Good, Check: "independence", What: fmt.Sprintf("the %d stores have no server in common", len(stores)),
		})
	}
	return findings
}

// common returns the worst finding about two stores.
func common(a, b Store) (worst driver.Finding, found bool) {
	for _, x := range a.Nodes {
		for _, y := range b.Nodes {
			if f, ok := shared(a.Name, b.Name, x, y); ok && (!found || f.Severity > worst.Severity) {
				worst, found = f, true
			}
		}
	}
	return worst, found
}

func shared(a, b string, x, y driver.Node) (driver.Finding, bool) {
	f := driver.Finding{Severity: driver.Unsafe, Check: "independence"}
	switch {
	case x.Server != "" && x.Server == y.Server:
		f.What = fmt.Sprintf("%s and %s are one and the same server", a, b)
		f.Why = "it has two votes"
		f.Remedy = "name every server once"
	case x.Data != "" && x.Data == y.Data:
		f.What = fmt.Sprintf("%s and %s are copies of the same data", a, b)
		f.Why = "one forgets what the other has granted when they change places"
		f.Remedy = "take servers that do not replicate one another"
	case host(x.Name) != "" && host(x.Name) == host(y.Name):
		f.Severity = driver.Warning
		f.What = fmt.Sprintf("%s and %s are on one machine, %s", a, b, host(x.Name))
		f.Why = "they are lost together"
		f.Remedy = "put them on machines, racks and power supplies of their own"
	default:
		return driver.Finding{}, false
	}
	return f, true
}

func host(name string) string {
	h, _, err := net.SplitHostPort(name)
	if err != nil {
		return ""
	}
	return h
}
