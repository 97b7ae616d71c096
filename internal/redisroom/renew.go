package redisroom

import (
	"context"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// batch is how many locks one script call renews. It keeps the server busy for a seventh
// of a millisecond, during which the server answers no other client. Several batches
// share a pipeline.
const batch = 100

// maxRenewals bounds the large calls of Renew under way on one server. If all renewals of
// a hundred thousand leases were sent at once, the last would wait for all before it, and on
// a slow server all would time out together, again and again. Four calls keep the server
// busy. On a cluster there is no bound, because a hanging node must not delay the rest.
const maxRenewals = 4

// renewal is one script call of a Renew.
type renewal struct {
	which  []int // indices into the refs
	script *script
	cmd    []string
	// refused is why a lease that moves between nodes is renewed by its one key.
	refused error
}

// Renew implements [driver.Driver].
func (s *Store) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if ctx.Err() != nil {
		for i := range refs {
			each(i, driver.Reply{}, notSent(ctx))
		}
		return
	}
	var valid []int
	for i := range refs {
		if err := checkRef(&refs[i]); err != nil {
			each(i, driver.Reply{}, err)
			continue
		}
		valid = append(valid, i)
	}
	if s.acks.wanted() {
		var settle func(context.Context)
		valid, each, settle = s.watchRenewals(refs, valid, each)
		defer settle(ctx)
	}
	groups := s.group(refs, valid)
	if len(groups) > 1 && !s.main.Cluster() {
		select {
		case s.renewalSlots <- struct{}{}:
			defer func() { <-s.renewalSlots }()
		case <-ctx.Done():
			for _, i := range valid {
				each(i, driver.Reply{}, notSent(ctx))
			}
			return
		}
	}
	r := round{store: s, refs: refs, each: each}
	groups = r.runAll(ctx, s.renew, groups, s.renew == s.main)
	if ctx.Err() == nil {
		r.runAll(ctx, s.main, groups, true)
		return
	}
	for _, g := range groups {
		for _, i := range g.which {
			each(i, driver.Reply{}, notSent(ctx))
		}
	}
}

// round is one call of Renew.
type round struct {
	store *Store
	refs  []driver.Ref
	each  func(int, driver.Reply, error)
}

// runAll runs the groups, and repeats them where useful. It returns the groups that had no
// connection, unless this is the last attempt.
func (r *round) runAll(ctx context.Context, client Client, groups []*renewal, last bool) (unsent []*renewal) {
	for len(groups) > 0 {
		var failed []*renewal
		groups, failed = r.run(ctx, client, groups, last)
		unsent = append(unsent, failed...)
	}
	return unsent
}

// group splits the refs into groups that one script call can renew: of one slot on a
// cluster, and of a limited size. Uncontended leases with one TTL form groups of their
// own, with shorter arguments.
func (s *Store) group(refs []driver.Ref, which []int) (groups []*renewal) {
	type kind struct {
		slot int
		ttl  time.Duration // of uncontended leases
	}
	open := make(map[kind]*renewal)
	var last kind
	var g *renewal
	for _, i := range which {
		ref := &refs[i]
		k := kind{slot: s.slot(ref.Key)}
		script := renewScript
		if ref.Uncontended && ref.Token == 0 && ref.Visit == "" {
			k.ttl, script = ref.TTL, renewUncontended
		}
		if g == nil || k != last {
			g, last = open[k], k
		}
		if g == nil || len(g.which) == batch {
			g = &renewal{script: script}
			open[k] = g
			groups = append(groups, g)
		}
		g.which = append(g.which, i)
	}
	return groups
}

// run runs the groups once. It returns groups to run again, because the server had no
// script or they failed together, and groups that could not be sent.
func (r *round) run(ctx context.Context, client Client, groups []*renewal, last bool) (again, unsent []*renewal) {
	s, refs, each := r.store, r.refs, r.each
	cmds := make([][]string, len(groups))
	for i, g := range groups {
		if g.cmd == nil {
			g.cmd = s.renewCommand(g, refs).take()
		}
		cmds[i] = g.cmd
	}
	client.Run(ctx, cmds, s.acks.want, func(i int, a Answer) {
		g := groups[i]
		if retry := s.retry(refs, g, a.Err); retry != nil {
			again = append(again, retry...)
			return
		}
		r.store.forgetClock(a.Err)
		if !last && IsUnsent(a.Err) {
			unsent = append(unsent, g)
			return
		}
		others := g.deliver(a, func(i int, r driver.Reply, err error) {
			if err == nil && r.State == driver.Granted && s.acks.wanted() {
				err = s.acks.confirm(s.slot(refs[i].Key), a)
			}
			each(i, r, err)
		})
		if len(others) > 0 {
			again = append(again, &renewal{which: others, script: renewScript})
		}
	})
	return again, unsent
}

// deliver passes on the answer for each ref of g, and returns the refs that the script left to
// another call: contended leases, or leases of a room with too many expired parties.
func (g *renewal) deliver(a Answer, each func(i int, r driver.Reply, err error)) (others []int) {
	if g.script == renewUncontended && a.Err == nil {
		return g.deliverTokens(a.Reply, each)
	}
	for k, i := range g.which {
		r, unfinished, err := g.answer(k, a)
		if unfinished {
			others = append(others, i)
			continue
		}
		each(i, r, err)
	}
	return others
}

// deliverTokens is deliver for a reply of lua/renew_uncontended.lua.
func (g *renewal) deliverTokens(reply any, each func(i int, r driver.Reply, err error)) (others []int) {
	tokens, ok := reply.(string)
	ok = ok && strings.Count(tokens, ",") == len(g.which)-1
	for _, i := range g.which {
		if !ok {
			each(i, driver.Reply{}, errReply)
			continue
		}
		var token string
		if token, tokens, _ = strings.Cut(tokens, ","); token == "" {
			others = append(others, i)
			continue
		}
		r, err := parseToken(token)
		each(i, r, err)
	}
	return others
}

// retry returns the renewals to run after g has failed, if it has.
func (s *Store) retry(refs []driver.Ref, g *renewal, err error) (again []*renewal) {
	switch {
	case err == nil:
	case s.repeat(g.script, g.cmd, err):
		again = append(again, g)
	case len(g.which) > 1 && IsReply(err):
		for _, i := range g.which {
			again = append(again, &renewal{which: []int{i}, script: renewScript})
		}
	case g.script != uncontendedScript && isMigrating(err) && refs[g.which[0]].Token == 0:
		cmd := s.uncontendedCommand(&refs[g.which[0]], true).take()
		again = append(again, &renewal{which: g.which, script: uncontendedScript, cmd: cmd, refused: err})
	}
	return again
}

// answer returns the reply for the k'th ref of g. unfinished reports whether the script had too much
// to remove before it came to the ref.
func (g *renewal) answer(k int, a Answer) (r driver.Reply, unfinished bool, err error) {
	replies, ok := a.Reply.([]any)
	switch {
	case a.Err != nil:
		err = classify(a.Err)
	case g.script == uncontendedScript && a.Reply != nil:
		r, err = parseRenewal(a.Reply)
	case g.script == uncontendedScript:
		err = classify(g.refused)
	case !ok || len(replies) != len(g.which):
		err = errReply
	default:
		if refused, is := replies[k].(ReplyError); is && isUnfinished(refused) {
			return r, true, nil
		}
		r, err = parseRenewal(replies[k])
	}
	return r, false, err
}
