package checker

import (
	"slices"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// life is an attempt and its lease, if it got one.
type life struct {
	name, proc string
	ask        history.Record
	queued     *history.Record
	got        *history.Record
	none       *history.Record
	writes     []history.Record
	end        *history.Record
	release    *history.Record
	released   *history.Record
	// from and to are the first and the last time at which the lease was
	// certainly live; both are 0 if it never was.
	from, to int64
}

func (l *life) exclusive() bool { return l.ask.Mode == history.Exclusive }

// weight returns how much of a limit the lease takes.
func (l *life) weight() int { return max(l.ask.Weight, 1) }

// conflicts reports whether the two exclude each other at any limit, or have a place in common.
func (l *life) conflicts(o *life) bool {
	others := o.places()
	taken := func(n int) bool { return slices.Contains(others, n) }
	return l.exclusive() || o.exclusive() || slices.ContainsFunc(l.places(), taken)
}

// places returns the numbers of the places that the lease has.
func (l *life) places() []int {
	if l.got == nil {
		return nil
	}
	return driver.Places(l.got.Places).Numbers()
}

// clean reports whether the release was confirmed.
func (l *life) clean() bool { return l.released != nil && l.released.Outcome == history.OK }

// lost reports whether and when a loss was reported to the holder.
func (l *life) lost() (int64, bool) {
	switch {
	case l.end != nil && l.end.Outcome == history.Lost:
		return l.end.At, true
	case l.released != nil && l.released.Outcome == history.Lost:
		return l.released.At, true
	}
	return 0, false
}

// over returns when the attempt was granted or gave up, 0 if it did neither.
func (l *life) over() int64 {
	switch {
	case l.got != nil:
		return l.got.At
	case l.none != nil:
		return l.none.At
	}
	return 0
}

func (l *life) believe(at int64) {
	if l.from == 0 {
		l.from = at
	}
	l.from, l.to = min(l.from, at), max(l.to, at)
}

// assemble builds lives from the records.
func (j *judge) assemble() {
	j.lives, j.keys = make(map[string]*life), make(map[string][]*life)
	j.said, j.own = make(map[string]bool), make(map[string]*shadows)
	for _, r := range j.records {
		if r.What == history.Ask {
			l := &life{name: r.Attempt, proc: r.Proc, ask: r}
			if j.lives[r.Attempt] != nil {
				j.violate(Shape, "%s asks twice", r.Attempt)
			}
			j.lives[r.Attempt] = l
			j.keys[r.Key] = append(j.keys[r.Key], l)
			j.Attempts++
		}
	}
	for _, r := range j.records {
		switch r.What {
		case history.Ask:
		case history.Fault:
			j.fault(r)
		case history.Bye:
			j.said[r.Proc] = true
			if r.Note != "" {
				j.violate(Left, "process %s ended with goroutines: %s", r.Proc, r.Note)
			}
		case history.Left:
			if r.Note != "" {
				j.violate(Left, "in the store: %s", r.Note)
			}
		default:
			j.note(r)
		}
	}
	j.shadows.merge()
	j.every.merge()
	for _, s := range j.own {
		s.merge()
	}
}

// note adds one record to its life.
func (j *judge) note(r history.Record) {
	l := j.lives[r.Attempt]
	if l == nil {
		j.violate(Shape, "%s of %q, which never asked", r.What, r.Attempt)
		return
	}
	switch r.What {
	case history.Queued:
		l.queued = &r
	case history.Got:
		l.got = &r
		j.Grants++
		if r.Live {
			l.believe(r.At)
		}
	case history.Live:
		l.believe(r.At)
	case history.Write:
		l.writes = append(l.writes, r)
		if r.Live {
			l.believe(r.At)
		}
	case history.End:
		l.end = &r
	case history.Release:
		l.release = &r
	case history.Released:
		l.released = &r
	case history.None:
		l.none = &r
		if r.Outcome == history.Held {
			j.Refusals++
		} else {
			j.Unserved++
		}
	}
}

// fault records a fault and the time that it disturbs.
func (j *judge) fault(r history.Record) {
	j.Faults[r.Note]++
	if r.Forgets != "" {
		j.forgets = append(j.forgets, r)
	}
	j.every.add(r.Since, r.At)
	if r.Proc == "" {
		j.shadows.add(r.Since, r.At)
		return
	}
	if j.own[r.Proc] == nil {
		j.own[r.Proc] = new(shadows)
	}
	j.own[r.Proc].add(r.Since, r.At)
}

// disturbed reports whether a fault concerned the process, or all processes, at
// any time between from and to.
func (j *judge) disturbed(proc string, from, to int64) bool {
	return j.shadows.overlap(from, to) > 0 || j.own[proc] != nil && j.own[proc].overlap(from, to) > 0
}

// forgot returns the last moment at which the store may have forgotten a lease
// that was requested at ask, before an event at then. ok is false if that is impossible.
func (j *judge) forgot(ask, then int64) (last int64, ok bool) {
	for _, f := range j.forgets {
		if f.At >= ask && f.Since <= then {
			last, ok = max(last, f.At), true
		}
	}
	return last, ok
}
