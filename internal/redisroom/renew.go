package redisroom

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/driver"
)

// batch is how many rooms one script renews. It keeps the server busy for a
// seventh of a millisecond, during which it answers nobody else; several of
// them travel in one pipeline.
const batch = 100

// renewal is one script call of a Renew.
type renewal struct {
	which []int // indices into the refs
	cmd   []string
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
	groups := s.group(refs, valid)
	for len(groups) > 0 {
		groups = s.renewGroups(ctx, refs, groups, each)
	}
}

// group cuts the refs into those that one script call can renew: of one slot
// if there is a cluster, and not too many.
func (s *Store) group(refs []driver.Ref, which []int) (groups []*renewal) {
	if !s.renew.Cluster() {
		for len(which) > 0 {
			n := min(batch, len(which))
			groups = append(groups, &renewal{which: which[:n]})
			which = which[n:]
		}
		return groups
	}
	bySlot := make(map[int]*renewal)
	for _, i := range which {
		at := Slot(s.prefix + refs[i].Key)
		g := bySlot[at]
		if g == nil || len(g.which) == batch {
			g = new(renewal)
			bySlot[at] = g
			groups = append(groups, g)
		}
		g.which = append(g.which, i)
	}
	return groups
}

// renewGroups runs the groups and returns those to run again: what the server
// had not the script for, and, one by one, what failed together.
func (s *Store) renewGroups(ctx context.Context, refs []driver.Ref, groups []*renewal, each func(int, driver.Reply, error)) (again []*renewal) {
	f := s.form(renewScript)
	cmds := make([][]string, len(groups))
	for i, g := range groups {
		if g.cmd == nil {
			g.cmd = renewCommand(f, s.prefix, refs, g.which)
		}
		cmds[i] = g.cmd
	}
	s.renew.Run(ctx, cmds, func(i int, reply any, err error) {
		g := groups[i]
		switch replies, ok := reply.([]any); {
		case err != nil && s.repeat(renewScript, g.cmd, err):
			again = append(again, g)
		case err != nil && len(g.which) > 1 && isRefusal(err):
			for _, i := range g.which {
				again = append(again, &renewal{which: []int{i}})
			}
		case err != nil:
			for _, i := range g.which {
				each(i, driver.Reply{}, classify(err))
			}
		case !ok || len(replies) != len(g.which):
			for _, i := range g.which {
				each(i, driver.Reply{}, errReply)
			}
		default:
			for k, i := range g.which {
				r, err := parseRenewal(replies[k])
				each(i, r, err)
			}
		}
	})
	return again
}

// isRefusal reports whether the server answered with an error.
func isRefusal(err error) bool {
	var reply ReplyError
	return errors.As(err, &reply)
}
