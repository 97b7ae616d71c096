package drivertest

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/driver"
)

// batchRows test many leases in one renewal.
var batchRows = []row{
	{"batch/each index is answered once", 0,
		"the caller waits for each answer: a missing answer loses a lease, and a doubled answer counts for another lease",
		func(l *lab, p, q *process) {
			want := make([]driver.State, 0, 64)
			refs := make([]driver.Ref, 0, 64)
			for i := range 20 {
				name := fmt.Sprintf("a%d", i)
				key := fmt.Sprintf("%s/%d", l.key, i)
				p.acquire(name, driver.Granted, in(key))
				refs = append(refs, l.ref(name, at(key)), l.ref("nobody", at(key)))
				want = append(want, driver.Granted, driver.Gone)
			}
			refs = append(refs, refs[0])
			want = append(want, driver.Granted)

			got, calls := p.renewAll(refs)
			for i := range refs {
				if calls[i] != 1 {
					l.Fatalf("%d answers for index %d of %d", calls[i], i, len(refs))
				}
				l.expect(fmt.Sprintf("renew index %d", i), got[i], want[i])
			}
		}},
	{"batch/one lost lease concerns no other", 0,
		"leases are independent although one call renews them",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted, in(l.key+"/1"), ttl(l.brief))
			p.acquire("b", driver.Granted, in(l.key+"/2"))
			l.pass(l.brief)
			got, _ := p.renewAll([]driver.Ref{l.ref("a", at(l.key+"/1")), l.ref("b", at(l.key+"/2"))})
			l.expect("renew a", got[0], driver.Gone)
			l.expect("renew b", got[1], driver.Granted)
		}},
	{"batch/empty", 0,
		"all leases of a batch may be released before the renewal is sent; this is not an error",
		func(l *lab, p, q *process) {
			if _, calls := p.renewAll(nil); len(calls) != 0 {
				l.Fatalf("%d answers to an empty batch", len(calls))
			}
		}},
}

// renewAll renews refs in one batch, and returns the answer and the number of
// answers by index. The unguarded slices let the race detector see concurrent
// calls, and calls after the return.
func (p *process) renewAll(refs []driver.Ref) ([]driver.Reply, []int) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, calls, total := make([]driver.Reply, len(refs)), make([]int, len(refs)), 0
	p.d.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
		if err != nil {
			p.Errorf("renew %s, index %d: %v", refs[i].ID, i, err)
		}
		got[i] = reply
		calls[i]++
		total++
	})
	if total != len(refs) {
		p.Fatalf("%d answers to %d refs", total, len(refs))
	}
	return got, calls
}
