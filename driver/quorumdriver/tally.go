package quorumdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// mostAhead is how far a node's token may be ahead of its clock: the other nodes refuse greater ones.
const mostAhead = 24 * time.Hour

// tally counts the nodes' answers to an acquire.
type tally struct {
	need, left int
	granted    []answer[driver.Reply]
	refused    []answer[driver.Reply] // by a state, or by an error that is an answer
	failed     []answer[driver.Reply]
}

func (s *Driver) newTally() tally {
	return tally{need: s.need, left: len(s.nodes), granted: make([]answer[driver.Reply], 0, len(s.nodes))}
}

func (t *tally) add(a answer[driver.Reply]) {
	t.left--
	switch {
	case a.err == nil && a.value.State == driver.Granted && a.value.Clock > 0 && a.value.Token > (a.value.Clock+mostAhead).Microseconds():
		a.err = fmt.Errorf("its token is %d, more than %v ahead of its clock", a.value.Token, mostAhead)
		t.failed = append(t.failed, a)
	case a.err == nil && a.value.State == driver.Granted:
		t.granted = append(t.granted, a)
	case a.err == nil || timing.Final(a.err) && !errors.Is(a.err, driver.ErrClosed):
		t.refused = append(t.refused, a)
	default:
		t.failed = append(t.failed, a)
	}
}

func (t *tally) nodes() int { return len(t.granted) + len(t.refused) + len(t.failed) + t.left }

func (t *tally) answered() int { return len(t.granted) + len(t.refused) }

// decided reports whether further answers are irrelevant: a majority granted, or no
// longer can, and it is known whether a majority answers.
func (t *tally) decided() bool {
	if len(t.granted) >= t.need {
		return true
	}
	return len(t.granted)+t.left < t.need && (t.answered() >= t.need || t.blocks(len(t.failed)))
}

// blocks reports whether without n nodes no majority is left.
func (t *tally) blocks(n int) bool { return t.nodes()-n < t.need }

// grant returns the reply to a request that a majority granted.
func (t *tally) grant(token int64) driver.Reply {
	reply := driver.Reply{State: driver.Granted, Token: token, Uncontended: true}
	reply.Holds, _ = t.holds()
	for _, a := range t.granted {
		// An earlier grant came from one of these nodes.
		reply.Replayed = reply.Replayed || a.value.Replayed
		reply.Uncontended = reply.Uncontended && a.value.Uncontended
	}
	return reply
}

// holds returns the number of leases of the same owner that a majority has seen. all reports
// whether no node has seen more.
func (t *tally) holds() (n int, all bool) {
	var space [MaxNodes]int64
	holds := t.sorted(space[:0], func(reply driver.Reply) int64 { return int64(reply.Holds) })
	most := holds[len(holds)-t.need]
	return int(most), most == holds[len(holds)-1]
}

// sorted appends a number of each grant to all, which is empty, in rising order.
func (t *tally) sorted(all []int64, number func(driver.Reply) int64) []int64 {
	for _, a := range t.granted {
		all = append(all, number(a.value))
	}
	slices.Sort(all)
	return all
}

// refusal returns the reply to a request that was not granted.
func (t *tally) refusal(s *Driver) (driver.Reply, error) {
	if t.answered() < t.need {
		return driver.Reply{}, s.noQuorum(t.failed)
	}
	finals, gone := t.refusals()
	busy := len(t.refused) - len(finals) - len(gone)
	switch {
	case t.blocks(len(gone)):
		return goneReplyOf(gone), nil
	case t.blocks(len(finals)), busy == 0 && len(finals) > 0:
		return driver.Reply{}, s.nodes[finals[0].node].named(finals[0].err)
	}
	reply := driver.Reply{State: driver.Busy, RetryAfter: t.retryAfter()}
	if h := t.holder(); h != nil {
		reply.Holders = []driver.Holder{*h}
	}
	return reply, nil
}

// refusals returns the nodes that refused with an error, and those that answered Gone.
// The remaining refusals mean that the lock is held.
func (t *tally) refusals() (finals, gone []answer[driver.Reply]) {
	for _, a := range t.refused {
		switch {
		case a.err != nil:
			finals = append(finals, a)
		case a.value.State == driver.Gone:
			gone = append(gone, a)
		}
	}
	return finals, gone
}

// reasonKnown reports whether the reason why a round is lost is certain. Without a
// majority, only the answers of all nodes show whether the round has left traces.
func (t *tally) reasonKnown() bool {
	finals, gone := t.refusals()
	if t.left == 0 || t.blocks(len(finals)) || t.blocks(len(gone)) {
		return true
	}
	if t.blocks(len(t.failed)) {
		return false
	}
	most := t.mostVotes()
	return most >= t.need || most+len(t.failed)+t.left < t.need && len(finals)+len(gone) == 0
}

// mostVotes returns the greatest number of nodes at which one holder has the lock.
func (t *tally) mostVotes() (most int) {
	for _, n := range t.votes() {
		most = max(most, n)
	}
	return most
}

// goneReplyOf is Gone with the reason that any of the nodes gave.
func goneReplyOf(answers []answer[driver.Reply]) driver.Reply {
	reply := driver.Reply{State: driver.Gone}
	for _, a := range answers {
		if a.value.Broken && !reply.Broken {
			reply.Broken, reply.Reason = true, a.value.Reason
		}
		reply.Replayed = reply.Replayed || a.value.Replayed
	}
	return reply
}

// retryAfter returns when a majority may be free, or sooner: no node reliably reports to a
// waiter that the lock was released.
func (t *tally) retryAfter() time.Duration {
	var free []time.Duration
	for range t.granted {
		free = append(free, 0)
	}
	for _, a := range t.refused {
		free = append(free, a.value.RetryAfter)
	}
	for range len(t.failed) + t.left {
		free = append(free, math.MaxInt64)
	}
	slices.Sort(free)
	if at := free[t.need-1]; at > 0 {
		return min(at, spread(pollInterval))
	}
	return spread(pollInterval)
}

// votes counts, for each holder, the nodes at which it has the lock.
func (t *tally) votes() map[string]int {
	votes := make(map[string]int)
	for _, a := range t.refused {
		if a.err != nil || a.value.State == driver.Gone {
			continue
		}
		id := ""
		if len(a.value.Holders) > 0 {
			id = a.value.Holders[0].ID
		}
		votes[id]++
	}
	return votes
}

// holder returns the holder that has the lock at most nodes, as reported by the node where
// it lasts longest.
func (t *tally) holder() *driver.Holder {
	votes := t.votes()
	var first *driver.Holder
	for _, a := range t.refused {
		if len(a.value.Holders) == 0 {
			continue
		}
		h := &a.value.Holders[0]
		if first == nil || cmp.Or(cmp.Compare(votes[h.ID], votes[first.ID]), cmp.Compare(h.Remaining, first.Remaining)) > 0 {
			first = h
		}
	}
	return first
}

// split reports whether a majority answered and no contender can have one.
func (t *tally) split() bool {
	most := t.mostVotes()
	return most > 0 && t.answered() >= t.need && most+len(t.failed)+t.left < t.need
}

// matches returns how many answers match.
func matches(answers []answer[driver.Reply], match func(answer[driver.Reply]) bool) (n int) {
	for _, a := range answers {
		if match(a) {
			n++
		}
	}
	return n
}

// amnesia counts the nodes that may have lost their data.
func (t *tally) amnesia() int {
	return matches(t.failed, func(a answer[driver.Reply]) bool { return errors.Is(a.err, driver.ErrAmnesia) })
}

// amnesic reports whether nodes that may have lost their data kept a majority from
// answering.
func (t *tally) amnesic() bool {
	n := t.amnesia()
	return n > 0 && t.answered() < t.need
}

// unsure returns the nodes of all that may or may not have carried the request out.
func (t *tally) unsure(all set) set {
	for _, a := range slices.Concat(t.granted, t.refused) {
		all = all.without(a.node)
	}
	for _, a := range t.failed {
		if definite(a.err) {
			all = all.without(a.node)
		}
	}
	return all
}

// noQuorum returns the error of a request that a majority did not answer.
func (s *Driver) noQuorum(failed []answer[driver.Reply]) error {
	return fmt.Errorf("%w: %s", driver.ErrNoQuorum, s.report(failed))
}

// undecided returns the error of a request that was not decided: the caller's context ended,
// or too few nodes answered.
func (s *Driver) undecided(ctx context.Context, failed []answer[driver.Reply]) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s", context.Cause(ctx), s.report(failed))
	}
	return s.noQuorum(failed)
}

// report describes the nodes that did not answer. It does not wrap their errors, because a
// match of one node's error does not hold for the quorum.
func (s *Driver) report(failed []answer[driver.Reply]) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes are needed", s.need, len(s.nodes))
	separator := ", but "
	for i, node := range s.nodes {
		for _, a := range failed {
			if a.node == i {
				fmt.Fprintf(&b, "%s%s: %s", separator, node.name, a.err)
				separator = "; "
			}
		}
	}
	return b.String()
}
