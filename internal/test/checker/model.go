package checker

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// One model serves the mutex, the read-write lock and the semaphore, as one
// admission rule does: only mode and weight of the holders differ.

// step is an operation on a lock: a grant, the end of the lease by release or
// by expiry, or a loss of memory.
type step struct {
	what      verb
	token     int64
	exclusive bool
	weight    int
	limit     int
	// stray: it may have been granted by a server that was being replaced, and
	// that did not have the grants of its successor.
	stray bool
	// early: it may have ended early on the store.
	early bool
}

type verb string

const (
	grant  verb = "grant"
	end    verb = "end"
	forget verb = "forget"
)

// room is the state of the model: the holders, and the last token.
type room struct {
	last   int64
	inside []party
}

type party struct {
	step
	// doubtful: the store may have forgotten it, so it excludes no other holder.
	doubtful bool
}

// admits reports whether the model allows the grant.
func (r room) admits(s step, tokens bool) bool {
	switch {
	case s.stray:
		return true
	case tokens && s.token <= r.last:
		return false
	}
	used := s.weight
	for _, p := range r.inside {
		if p.doubtful {
			continue
		}
		if s.exclusive || p.exclusive {
			return false
		}
		used += p.weight
	}
	return s.exclusive || s.limit == 0 || used <= s.limit
}

// next returns whether s is allowed, and the state after it.
func (r room) next(s step, tokens bool) (bool, room) {
	switch s.what {
	case grant:
		return r.admits(s, tokens), room{s.token, append(slices.Clone(r.inside), party{s, s.stray || s.early})}
	case forget:
		inside := slices.Clone(r.inside)
		for i := range inside {
			inside[i].doubtful = true
		}
		return true, room{r.last, inside}
	default:
		at := slices.IndexFunc(r.inside, func(p party) bool { return p.token == s.token })
		if at < 0 {
			return false, r
		}
		return true, room{r.last, slices.Delete(slices.Clone(r.inside), at, at+1)}
	}
}

// lock is the model of one key. Without tokens the tokens of the grants are only names.
func lock(tokens bool) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return room{} },
		Step:  func(state, input, _ any) (bool, any) { return state.(room).next(input.(step), tokens) },
		Equal: func(a, b any) bool { return a.(room).equal(b.(room)) },
		DescribeOperation: func(input, _ any) string {
			s := input.(step)
			return fmt.Sprintf("%s %d", s.what, s.token)
		},
	}
}

func (r room) equal(o room) bool { return r.last == o.last && slices.Equal(r.inside, o.inside) }

// Bounds of the search for one key. Above them only the invariants are checked.
const (
	maxOperations = 6000
	maxSearch     = 20 * time.Second
)

// model searches for an order of the events on one key. Attempts that were not granted, or
// whose outcome is unknown, are left out: they had no lease, and their effects are undone, so
// the rest must be correct without them.
func (j *judge) model(key string, leases []*life, tokens bool) {
	ops := j.operations(leases, tokens)
	if len(ops) > maxOperations {
		j.Unsearched += len(ops)
		return
	}
	switch porcupine.CheckOperationsTimeout(lock(tokens), ops, maxSearch) {
	case porcupine.Ok:
		j.Operations += len(ops)
	case porcupine.Illegal:
		j.Operations += len(ops)
		j.violate(Model, "%s: no order explains its %d operations", key, len(ops))
	default:
		j.Unsearched += len(ops)
	}
}

func (j *judge) operations(leases []*life, tokens bool) []porcupine.Operation {
	var ops []porcupine.Operation
	add := func(s step, call, back int64) {
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: s, Call: call, Return: max(back, call)})
	}
	for i, l := range leases {
		s := step{what: grant, token: l.got.Token, exclusive: l.exclusive(), weight: l.weight(), limit: l.ask.Limit, stray: j.replaced(l), early: j.early(l)}
		if !tokens {
			s.token = int64(i + 1)
		}
		add(s, l.ask.At, l.got.At)
		// It ended after the holder last saw it live, by a release or otherwise. A lease
		// that was never seen live may have ended before the answer arrived.
		s.what = end
		from := max(l.ask.At, l.to)
		if l.clean() {
			add(s, from, l.released.At)
		} else {
			add(s, from, bound(leases, l))
		}
	}
	for _, f := range j.forgets {
		if len(leases) > 0 {
			add(step{what: forget}, f.Since, f.At)
		}
	}
	return ops
}

// bound returns the latest time at which a lease of unknown end can matter: the
// return of the next grant that conflicts with it.
func bound(leases []*life, l *life) int64 {
	from := max(l.got.At, l.to)
	latest := from + l.ask.TTL
	for _, o := range leases {
		if o != l && o.conflicts(l) && o.got.At >= from {
			latest = min(latest, o.got.At)
		}
	}
	return latest
}
