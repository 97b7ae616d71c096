package doctor

import (
	"cmp"
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
func Independent(stores []Store) []driver.Finding {
	var c Checkup
	for i, a := range stores {
		for _, b := range stores[i+1:] {
			c.Findings = append(c.Findings, common(a, b)...)
		}
	}
	for _, s := range stores {
		known := slices.ContainsFunc(s.Nodes, func(n driver.Node) bool { return n.Server != "" })
		c.Judge("independence", If(len(stores) > 1 && !known, driver.Notice, s.Name+" does not identify its server", "it may be another of the same", ""))
	}
	if len(c.Findings) == 0 && len(stores) > 1 {
		c.Judge("independence", Good(fmt.Sprintf("the %d stores have no server in common", len(stores))))
	}
	return c.Findings
}

// common returns the worst finding about two stores, if there is one.
func common(a, b Store) []driver.Finding {
	var c Checkup
	for _, x := range a.Nodes {
		for _, y := range b.Nodes {
			c.Judge("independence",
				If(x.Server != "" && x.Server == y.Server, driver.Unsafe, fmt.Sprintf("%s and %s are one and the same server", a.Name, b.Name),
					"it has two votes", "name every server once"),
				If(x.Data != "" && x.Data == y.Data, driver.Unsafe, fmt.Sprintf("%s and %s are copies of the same data", a.Name, b.Name),
					"one forgets grants of the other when they change places", "take servers that do not replicate one another"),
				If(host(x.Name) != "" && host(x.Name) == host(y.Name), driver.Warning, fmt.Sprintf("%s and %s are on one machine, %s", a.Name, b.Name, host(x.Name)),
					"they are lost together", "put them on machines, racks and power supplies of their own"))
		}
	}
	slices.SortStableFunc(c.Findings, func(f, g driver.Finding) int { return cmp.Compare(g.Severity, f.Severity) })
	return c.Findings[:min(len(c.Findings), 1)]
}

func host(name string) string {
	h, _, err := net.SplitHostPort(name)
	if err != nil {
		return ""
	}
	return h
}
