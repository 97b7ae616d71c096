package quorumdriver

import (
	"context"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// agreeOnToken returns the token of a grant by a majority: a token that every node of a
// majority has, and below which none of them will fall.
//
// Usually the nodes agree, because the previous holder wrote its token back. If not,
// agreeOnToken waits a moment for further answers, but not for slow nodes. If the owner
// has other leases, or the lease was granted before, the nodes that have it agree, and
// agreeOnToken waits for their answers until the round ends. A lease that is held here
// keeps the token that its holder has.
func (s *Driver) agreeOnToken(ctx context.Context, l *lease, r *round[driver.Reply], t *tally, req driver.Request) (int64, error) {
	l.mu.Lock()
	reported := l.reportedToken()
	l.mu.Unlock()
	if reported > 0 && s.fencing && t.blocks(t.replayed()) {
		return reported, nil // it has been held all the time
	}
	for !t.agrees(s.fencing) {
		next := r.next
		if _, same := t.holds(); same && t.replayed() == 0 {
			next = r.nextSoon
		}
		a, ok := next()
		if !ok {
			break
		}
		t.add(a)
	}
	if !s.fencing {
		return 0, nil
	}
	if token, ok := t.agreedToken(); ok {
		return token, nil
	}
	return s.writeBack(ctx, l, t, driver.Ref{Key: req.Key, ID: req.ID, TTL: req.TTL})
}

// replayed counts the nodes at which the lease was granted before, so that a caller may
// have its token.
func (t *tally) replayed() int {
	return matches(t.granted, func(a answer[driver.Reply]) bool { return a.value.Replayed })
}

// agrees reports whether a majority has the same token and as many holds as any node.
func (t *tally) agrees(fencing bool) bool {
	_, same := t.holds()
	_, agreed := t.agreedToken()
	return same && (agreed || !fencing)
}

// writeBack raises the token to the greatest one at the nodes that are behind, until a
// majority has it. Another request of the same lease may raise it further at the same
// time.
func (s *Driver) writeBack(ctx context.Context, l *lease, t *tally, ref driver.Ref) (int64, error) {
	const most = 4
	var failed []answer[driver.Reply]
	for range most {
		ref.Token = t.greatestToken()
		r := ask(ctx, s, t.behind(), timing.Life(ref.TTL, timing.Drift), func(ctx context.Context, i int) (driver.Reply, error) {
			return l.nodes[i].raise(ctx, ref)
		}, l)
		failed = nil
		token, agreed := t.agreedToken()
		for !agreed {
			a, ok := r.next()
			if !ok {
				break
			}
			if a.err == nil {
				t.raised(a)
				token, agreed = t.agreedToken()
			}
			if a.err == nil && a.value.Token < ref.Token {
				a.err = fmt.Errorf("its token is %d instead of %d (0: no token)", a.value.Token, ref.Token)
			}
			if a.err != nil {
				failed = append(failed, a)
			}
		}
		r.finish(nil)
		if agreed {
			return token, nil
		}
		if token == ref.Token {
			break
		}
	}
	return 0, fmt.Errorf("write the fencing token back: %w", s.noQuorum(failed))
}

// greatestToken returns the greatest token that a node granted.
func (t *tally) greatestToken() (token int64) {
	for _, a := range t.granted {
		token = max(token, a.value.Token)
	}
	return token
}

// tokens appends the tokens of the grants to all, which is empty, in rising order.
func (t *tally) tokens(all []int64) []int64 {
	return t.sorted(all, func(reply driver.Reply) int64 { return reply.Token })
}

// agreedToken returns the token that a majority has. If there is none, it returns the
// greatest token and false.
func (t *tally) agreedToken() (int64, bool) {
	var space [MaxNodes]int64
	return agreed(t.tokens(space[:0]), t.need)
}

// agreed returns a value that occurs at least need times in values, which are sorted. If
// there is none, it returns the greatest value and false.
func agreed(values []int64, need int) (greatest int64, ok bool) {
	for i, value := range values {
		if i >= need-1 && values[i-need+1] == value {
			return value, true
		}
		greatest = value
	}
	return greatest, false
}

// majorityToken returns the greatest token that a majority has reached.
func (t *tally) majorityToken() int64 {
	var space [MaxNodes]int64
	tokens := t.tokens(space[:0])
	return tokens[len(tokens)-t.need]
}

// behind returns the nodes whose token is not the greatest.
func (t *tally) behind() (nodes set) {
	top := t.greatestToken()
	for _, a := range t.granted {
		if a.value.Token < top {
			nodes = nodes.with(a.node)
		}
	}
	return nodes
}

// raised takes the answer of a node to a raise: its token now. A node that no longer has
// the lease does not count.
func (t *tally) raised(a answer[driver.Reply]) {
	k := slices.IndexFunc(t.granted, func(g answer[driver.Reply]) bool { return g.node == a.node })
	if a.value.State == driver.Granted {
		t.granted[k].value.Token = a.value.Token
	} else {
		t.granted = slices.Delete(t.granted, k, k+1)
	}
}
