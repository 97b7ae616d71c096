package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/history"
)

// exclusion compares the lives of leases: while a lease is live, no conflicting lease
// is. Several may be granted in one moment of virtual time, each after
// the release of the lease before: the tokens show the order.
func (j *judge) exclusion(key string, leases []*life) {
	leases = slices.DeleteFunc(leases, func(l *life) bool { return l.from == 0 })
	slices.SortFunc(leases, func(a, b *life) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.got.Token, b.got.Token), cmp.Compare(a.to, b.to))
	})
	var inside []*life
	for _, l := range leases {
		inside = slices.DeleteFunc(inside, func(o *life) bool { return o.to <= l.from })
		used := l.weight()
		for _, o := range inside {
			used += o.weight()
			if l.conflicts(o) {
				j.meet(key, o, l)
			}
		}
		if limit := l.ask.Limit; !l.exclusive() && limit > 0 && used > limit && len(inside) > 0 {
			j.crowded(key, inside, l, used)
		}
		inside = append(inside, l)
	}
}

// meet checks two leases that were live at once, a before b.
func (j *judge) meet(key string, a, b *life) {
	last, ok := j.forgot(min(a.ask.At, b.ask.At), max(a.got.At, b.got.At))
	if !ok {
		j.violate(Exclusion, "%s: %s (token %d) was believed in until %s after the grant of %s (token %d)",
			key, a.name, a.got.Token, seconds(min(a.to, b.to)-b.from), b.name, b.got.Token)
		return
	}
	j.Excused++
	// From then on the store had only one of them. The holder of the other learned that by
	// its deadline at the latest.
	until := last + min(a.ask.TTL, b.ask.TTL)
	for _, l := range []*life{a, b} {
		if j.early(l) {
			until = max(until, l.got.At+window)
		}
	}
	if min(a.to, b.to) > until {
		j.violate(Loss, "%s: %s and %s met after the store forgot, and still did %s after it", key, a.name, b.name, seconds(min(a.to, b.to)-last))
	}
}

// early reports whether the lease may have ended early on the store although it
// was granted after the clock of the store had been stepped forward. A waiter that queued
// before the step computes its lease from the store's clock, until its next request. So it
// may assume that it holds the lock for one window after the answer reached it, however late that was.
func (j *judge) early(l *life) bool {
	return l.queued != nil && slices.ContainsFunc(j.forgets, func(f history.Record) bool {
		return f.Forgets == history.ForgetsLeases && f.Since <= l.got.At && f.At >= l.ask.At
	})
}

// crowded checks a semaphore with more holders than its limit.
func (j *judge) crowded(key string, inside []*life, l *life, used int) {
	first := l.ask.At
	for _, o := range inside {
		first = min(first, o.ask.At)
	}
	if _, ok := j.forgot(first, l.got.At); ok {
		j.Excused++
		return
	}
	j.violate(Exclusion, "%s: %d places taken of %d when %s entered", key, used, l.ask.Limit, l.name)
}

// losses compares the losses that were reported to holders with the possible causes.
func (j *judge) losses(key string, leases []*life) {
	for _, l := range leases {
		at, lost := l.lost()
		if lost {
			j.Losses++
		}
		if lost && j.rules.Steady && !j.disturbed(l.proc, at-2*l.ask.TTL, at) {
			j.violate(FalseLoss, "%s: %s was lost without a cause: %s", key, l.name, l.reason())
		}
		for _, f := range j.forgets {
			// It was granted before the fault, and is gone.
			if f.Forgets != history.ForgetsAll || l.got.At >= f.Since {
				continue
			}
			if l.to > f.At+l.ask.TTL {
				j.violate(Loss, "%s: %s was believed in until %s after the store forgot it (%s)", key, l.name, seconds(l.to-f.At), f.Note)
			}
			// If a release gets no answer at first and then the answer that there is no lease,
			// it counts as done.
			told := l.clean() && l.release != nil && l.release.At > f.At && l.released.At-l.release.At < oneTry
			if told && !j.disturbed(l.proc, f.At+1, l.released.At) {
				j.violate(Loss, "%s: the release of %s does not report its loss %s before (%s)", key, l.name, seconds(l.release.At-f.At), f.Note)
			}
		}
	}
}

// oneTry is less than it takes until a request is repeated.
const oneTry = int64(5 * time.Millisecond)

// reason returns the cause of the loss that the holder got.
func (l *life) reason() string {
	if l.end != nil {
		return l.end.Note
	}
	return l.released.Note
}
