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
func (s *Driver) agreeOnToken(ctx context.Context, r *round[driver.Reply], t *tally, req driver.Request) (int64, error) {
	if s.plainMaximum {
		return t.greatestToken(), nil
	}
	if shown := r.lease.reportedToken(); shown > 0 && s.fencing && t.blocks(t.replayed()) {
		return shown, nil // it has been held all the time
	}
	var patience <-chan struct{}
	for !t.agrees(s.fencing) {
		if _, same := t.holds(); same && t.replayed() == 0 {
			if !r.worthWaiting() {
				break
			}
			if patience == nil {
				moment, cancel := context.WithTimeout(ctx, slowAfter)
				defer cancel()
				patience = moment.Done()
			}
		}
		a, ok := r.nextBefore(patience)
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
	return s.writeBack(ctx, r.lease, t, driver.Ref{Key: req.Key, ID: req.ID, TTL: req.TTL})
}

// replayed counts the nodes at which the lease was granted before, so that a caller may
// have its token.
func (t *tally) replayed() (n int) {
	for _, a := range t.granted {
		if a.value.Replayed {
			n++
		}
	}
	return n
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
	const meetings = 4
	var failed []answer[driver.Reply]
	for range meetings {
		ref.Token = t.greatestToken()
		r := ask(ctx, s, l, t.behind(), timing.Life(ref.TTL, timing.Drift), func(ctx context.Context, i int) (driver.Reply, error) {
			return s.raiseAt(ctx, i, ref)
		})
		failed = failed[:0]
		for {
			if _, ok := t.agreedToken(); ok {
				break
			}
			a, ok := r.next()
			if !ok {
				break
			}
			t.raised(a)
			if a.err == nil && a.value.Token < ref.Token {
				a.err = fmt.Errorf("its token is %d instead of %d (0: no token)", a.value.Token, ref.Token)
			}
			if a.err != nil {
				failed = append(failed, a)
			}
		}
		r.finish(nil)
		if token, ok := t.agreedToken(); ok {
			return token, nil
		}
		if t.greatestToken() == ref.Token {
			break
		}
	}
	return 0, fmt.Errorf("write the fencing token back: %w", s.noQuorum(failed))
}

// raiseAt raises the token of a lease at one node.
func (s *Driver) raiseAt(ctx context.Context, i int, ref driver.Ref) (reply driver.Reply, err error) {
	if s.plainMaximum {
		return reply, nil
	}
	n := s.nodes[i]
	reply, err = call(ctx, n, func(ctx context.Context) (driver.Reply, error) {
		n.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
		return reply, err
	})
	if err != nil {
		return driver.Reply{}, err
	}
	s.raised(i, ref, reply)
	return reply, nil
}

// raised notes the token that a lease has at a node.
func (s *Driver) raised(i int, ref driver.Ref, reply driver.Reply) {
	if l := s.lookup(leaseKey{ref.Key, ref.ID}); l != nil {
		l.mu.Lock()
		p := &l.nodes[i]
		p.token = max(p.token, reply.Token)
		l.mu.Unlock()
		s.leave(l)
	}
}

// greatestToken returns the greatest token that a node granted.
func (t *tally) greatestToken() (token int64) {
	for _, a := range t.granted {
		token = max(token, a.value.Token)
	}
	return token
}

// agreedToken returns the token that a majority has, if one has.
func (t *tally) agreedToken() (int64, bool) {
	for k, a := range t.granted {
		same := 1
		for _, b := range t.granted[k+1:] {
			if a.value.Token == b.value.Token {
				same++
			}
		}
		if same >= t.need {
			return a.value.Token, true
		}
	}
	return 0, false
}

// majorityToken returns the greatest token that a majority has reached.
func (t *tally) majorityToken() int64 {
	var tokens []int64
	for _, a := range t.granted {
		tokens = append(tokens, a.value.Token)
	}
	slices.Sort(tokens)
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
	for k := range t.granted {
		if g := &t.granted[k]; g.node == a.node && a.err == nil {
			if a.value.State != driver.Granted {
				t.granted = append(t.granted[:k], t.granted[k+1:]...)
				return
			}
			g.value.Token = a.value.Token
			return
		}
	}
}

// raiseBeforeRelease raises the token at a node before a release. It leaves half of the
// time to the release.
func (s *Driver) raiseBeforeRelease(ctx context.Context, i int, ref driver.Ref) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	s.nodes[i].Renew(ctx, []driver.Ref{ref}, func(int, driver.Reply, error) {})
}

// tokenToRaise returns the token to which to raise a node before the lease is released
// there, or 0. If a node differed from the majority, the next holder would wait for other
// nodes or write back, and the token of an ended lease cannot be raised. The caller holds
// mu.
func (l *lease) tokenToRaise(i int, ref driver.Ref) int64 {
	own := l.nodes[i].token
	if own == 0 || l.token == 0 || !l.ended || ref.Visit != "" || l.req.Reenter || l.req.Mode != driver.Exclusive {
		return 0 // or another lease has that token
	}
	top := l.token
	for _, p := range l.nodes {
		top = max(top, p.token)
	}
	if own == top {
		return 0
	}
	return top
}
