package checker

import (
	"cmp"
	"slices"
	"sort"

	"github.com/leasehold-go/leasehold/internal/test/history"
)

// tokens compares grants: the token of each is greater than the tokens
// of all grants that existed before it was requested, and each token occurs once. It
// returns whether a model can rely on their order.
//
// A server that was replaced and has not noticed it goes on granting, with
// smaller tokens than its successor: writes under them are rejected.
func (j *judge) tokens(key string, leases []*life) (inOrder bool) {
	if !j.rules.Tokens {
		return false
	}
	inOrder = !slices.ContainsFunc(leases, j.replaced)
	byToken(leases)
	for i, l := range leases {
		switch {
		case l.got.Token <= 0 || l.got.Token >= 1<<53:
			j.violate(Tokens, "%s: %s has token %d", key, l.name, l.got.Token)
		case i > 0 && l.got.Token == leases[i-1].got.Token:
			j.violate(Tokens, "%s: %s and %s both have token %d", key, leases[i-1].name, l.name, l.got.Token)
		}
	}
	var first *life // the earliest with a greater token
	for _, l := range slices.Backward(leases) {
		switch late := first != nil && first.got.At < l.ask.At; {
		case late && j.replaced(l):
			j.Behind++
		case late:
			j.violate(Tokens, "%s: %s got token %d although %s had token %d %s before it asked",
				key, l.name, l.got.Token, first.name, first.got.Token, seconds(l.ask.At-first.got.At))
		}
		if first == nil || l.got.At < first.got.At {
			first = l
		}
	}
	return inOrder
}

// replaced reports whether the lease may have been granted by a server that was
// being replaced.
func (j *judge) replaced(l *life) bool {
	return slices.ContainsFunc(j.forgets, func(f history.Record) bool {
		return f.Forgets == history.ForgetsSome && f.Since <= l.got.At && f.At >= l.ask.At
	})
}

func byToken(leases []*life) {
	slices.SortFunc(leases, func(a, b *life) int { return cmp.Compare(a.got.Token, b.got.Token) })
}

// fence compares the register with the grants: it accepts no write of a holder
// whose successor has written, and rejects no write of a live lease.
func (j *judge) fence(key string, leases []*life) {
	type write struct {
		by        *life
		since, at int64
	}
	var accepted []write
	for _, l := range leases {
		for _, w := range l.writes {
			if w.Accepted {
				j.Writes++
				accepted = append(accepted, write{l, w.Since, w.At})
				continue
			}
			j.Stale++
			if _, ok := j.forgot(l.ask.At, w.At); w.Live && !ok {
				j.violate(Fence, "%s: a write of %s (token %d) was refused while its lease was live", key, l.name, l.got.Token)
			}
		}
	}
	ended := slices.Clone(accepted)
	sort.Slice(accepted, func(a, b int) bool { return accepted[a].since < accepted[b].since })
	sort.Slice(ended, func(a, b int) bool { return ended[a].at < ended[b].at })
	var newest *life // of the leases that had written, the last requested
	next := 0
	for _, w := range accepted {
		for ; next < len(ended) && ended[next].at < w.since; next++ {
			if newest == nil || ended[next].by.ask.At > newest.ask.At {
				newest = ended[next].by
			}
		}
		if newest != nil && newest.ask.At > w.by.got.At {
			j.violate(Fence, "%s: a write of %s (token %d) was accepted after its successor %s (token %d) had written",
				key, w.by.name, w.by.got.Token, newest.name, newest.got.Token)
		}
	}
}
