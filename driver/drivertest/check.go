package drivertest

import (
	"context"

	"github.com/leasehold-go/leasehold/driver"
)

// checkRows test the report of a store that is a [driver.Checker].
var checkRows = []row{
	{"check/has no effect and names its checks", 0,
		"operators check a store that is in use",
		func(l *lab, p, q *process) {
			checker, ok := driver.As[driver.Checker](p.d)
			if !ok {
				l.Skip("the store is not a driver.Checker") //nolint:forbidigo // a store need not be a driver.Checker
			}
			held := p.acquire("a", driver.Granted)
			report, err := checker.Check(context.Background())
			if err != nil {
				l.Fatalf("check: %v", err)
			}
			if len(report.Findings) == 0 {
				l.Fatalf("the report has no findings")
			}
			for _, f := range report.Findings {
				good := f.Severity == driver.Good
				if f.Check == "" || f.What == "" || f.Severity > driver.Unsafe || good && f.Why+f.Remedy != "" || f.Severity >= driver.Warning && f.Why == "" {
					l.Errorf("finding %+v: want Check, What and a valid Severity; Why from Warning on, and neither Why nor Remedy if it is Good", f)
				}
			}
			l.wantToken(p.acquire("a", driver.Granted), held.Token)
		}},
}
