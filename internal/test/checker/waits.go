package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// window is the longest time for which a dead waiter that is granted the lock
// blocks the other waiters.
const window = int64(time.Second)

// memory is how long after a fault it may still affect a process: the process catches up by
// its next request.
const memory = int64(6 * time.Second)

// order compares grants with arrivals: if a waiter was queued before another attempt began,
// it is served first. The store's own order of grants is the order of tokens.
func (j *judge) order(key string, lives []*life) {
	if !j.rules.Queue {
		return
	}
	for _, l := range lives {
		until := l.waited()
		if l.queued == nil || until == 0 {
			continue
		}
		judged := false
		at, _ := slices.BinarySearchFunc(lives, l.queued.At+1, func(o *life, at int64) int { return cmp.Compare(o.ask.At, at) })
		for ; at < len(lives) && lives[at].ask.At < until; at++ {
			o := lives[at]
			if o == l || o.got == nil || o.got.At >= until && l.got == nil {
				continue
			}
			if j.disturbed(l.proc, l.queued.At-memory, until) {
				continue
			}
			judged = true
			if l.got == nil || o.got.Token < l.got.Token {
				j.violate(Order, "%s: %s, which had waited for %s when %s asked, was overtaken by it (token %d)",
					key, l.name, seconds(o.ask.At-l.queued.At), o.name, o.got.Token)
			}
		}
		if judged {
			j.Ordered++
		}
	}
}

// waited returns until when the attempt certainly had its place in the queue, or 0 if
// that is unknown: an attempt that gives up leaves the queue a moment before it is recorded.
func (l *life) waited() int64 {
	switch {
	case l.got != nil:
		return l.got.At
	case l.none != nil && l.none.Outcome == history.Held && l.none.At >= l.ask.At+l.ask.Wait:
		return l.ask.At + l.ask.Wait
	}
	return 0
}

// prompt compares the time for which a lock stayed free with the waits for it.
func (j *judge) prompt(key string, lives, leases []*life) {
	var taken shadows
	for _, l := range leases {
		end := l.got.At
		switch {
		case l.clean():
			end = l.released.At
		default:
			end = max(end, l.to) + l.ask.TTL
			if l.released != nil {
				end = max(end, l.released.At) // a release that failed at first
			}
		}
		taken.add(l.ask.At, end)
		if l.queued != nil {
			// Until the grant it did not have the lock.
			taken.spans[len(taken.spans)-1].from = l.got.At
		}
	}
	taken.merge()
	for _, l := range lives {
		until := l.over()
		if l.queued == nil || until == 0 {
			continue
		}
		from := l.queued.At
		for _, s := range append(taken.within(from, until), span{until, until}) {
			j.free(key, l, from, s.from)
			from = max(from, s.to)
		}
	}
}

// free checks a stretch of time for which l waited and the lock was free.
// A fault excuses its own duration, and the time by which it delayed releases.
func (j *judge) free(key string, l *life, from, to int64) {
	allowed := j.rules.Prompt
	if allowed == 0 || to-from <= allowed {
		return
	}
	reach := from - l.ask.TTL - memory
	allowed += j.every.overlap(reach, to) + j.every.count(reach, to)*(l.ask.TTL+2*window)
	if to-from > allowed {
		j.violate(Wait, "%s: %s waited for %s while the lock was free; %s are allowed", key, l.name, seconds(to-from), seconds(allowed))
	}
}

// patience is how long a call may take beyond its wait: the time limit of a request to a
// store that does not answer, and an allowance for a busy machine.
const patience = int64(25 * time.Second)

// ends checks that every attempt ends.
func (j *judge) ends() {
	for _, l := range j.lives {
		for _, r := range []*history.Record{l.none, l.end, l.released} {
			if r != nil && r.Outcome == history.Failed {
				j.violate(Shape, "%s: %s of %s: %s", l.ask.Key, r.What, l.name, r.Note)
			}
		}
		over := l.over()
		if over == 0 {
			if j.said[l.proc] {
				j.violate(Wait, "%s: %s never ended", l.ask.Key, l.name)
			}
			continue
		}
		if took := over - l.ask.At; took > l.ask.Wait+patience+j.every.overlap(l.ask.At, over) {
			j.violate(Wait, "%s: %s took %s with a wait of %s", l.ask.Key, l.name, seconds(took), seconds(l.ask.Wait))
		}
		if l.got != nil && l.released == nil && j.said[l.proc] {
			j.violate(Shape, "%s: %s was never released", l.ask.Key, l.name)
		}
	}
}

// refusals checks that each refusal names a possible holder: not the
// asker itself, and not an attempt that had ended before.
func (j *judge) refusals(key string, lives, leases []*life) {
	byToken := slices.Clone(leases)
	slices.SortFunc(byToken, func(a, b *life) int { return cmp.Compare(a.got.At, b.got.At) })
	for _, l := range lives {
		if l.none == nil || l.none.Holder == "" {
			continue
		}
		named := j.lives[l.none.Holder]
		switch {
		case named == nil:
			j.violate(Refusal, "%s: the refusal of %s names %q, which never asked", key, l.name, l.none.Holder)
		case named == l:
			j.violate(Refusal, "%s: the refusal of %s names itself", key, l.name)
		case named.ask.Key != key:
			j.violate(Refusal, "%s: the refusal of %s names %s, which asked for %s", key, l.name, named.name, named.ask.Key)
		case named.ask.At > l.none.At:
			j.violate(Refusal, "%s: the refusal of %s names %s, which asked later", key, l.name, named.name)
		default:
			j.finished(key, l, named, byToken)
		}
	}
}

// finished checks whether the named attempt had ended before l asked.
func (j *judge) finished(key string, l, named *life, byGrant []*life) {
	at := l.ask.At
	if _, ok := j.forgot(named.ask.At, l.none.At); ok {
		return // an old state of the store may have come back
	}
	if !j.rules.Queue && named.release != nil && j.shadows.overlap(named.release.At, at) > 0 {
		return // one node of several may have missed the release
	}
	switch {
	case named.clean() && named.released.At < at:
		j.violate(Refusal, "%s: the refusal of %s names %s, which had been released %s before", key, l.name, named.name, seconds(at-named.released.At))
	case named.none != nil && named.none.At < at && at-named.none.At > j.undone(named, at):
		j.violate(Refusal, "%s: the refusal of %s names %s, which had given up %s before", key, l.name, named.name, seconds(at-named.none.At))
	case named.got != nil && j.rules.Tokens:
		for _, o := range byGrant {
			if o.got.At >= at {
				break
			}
			if o.got.Token > named.got.Token && o.conflicts(named) {
				j.violate(Refusal, "%s: the refusal of %s names %s (token %d), which %s (token %d) had followed %s before",
					key, l.name, named.name, named.got.Token, o.name, o.got.Token, seconds(at-o.got.At))
				return
			}
		}
	}
}

// undone returns how long the remains of an attempt that gave up may exist,
// if they are seen at the time at. They are removed at once in the background, if
// the requests reach the store.
func (j *judge) undone(l *life, at int64) int64 {
	const once = int64(3 * time.Second)
	from := l.ask.At
	allowed := once + j.shadows.overlap(from, at) + j.shadows.count(from, at)*window
	if own := j.own[l.proc]; own != nil {
		allowed += own.overlap(from, at) + own.count(from, at)*window/2
	}
	if at-l.none.At > allowed && j.hindered(l) {
		allowed += int64(timing.TicketLife("somewhere")) // the longest there is
	}
	return allowed
}

// hindered reports whether faults may have kept the whole undo from the store.
// It is then given up, and the place in the queue stays for the life of its
// ticket, which the store counts from its last request. Until that life is
// over the lock may be granted to the ticket and bear its name, for one
// confirmation window. Only waiters have a ticket.
//
// A single try of the undo may hang for a third of its total time. So if faults leave a third
// or less, one try that began in a fault can have used up the rest. If they leave more, a try
// should have reached the store, and remains count as a violation.
func (j *judge) hindered(l *life) bool {
	if l.ask.Wait == 0 || l.ask.Undo == 0 {
		return false
	}
	faults := shadows{slices.Clone(j.shadows.spans)}
	if own := j.own[l.proc]; own != nil {
		faults.spans = append(faults.spans, own.spans...)
	}
	faults.merge()
	return 3*faults.overlap(l.none.At, l.none.At+l.ask.Undo) >= 2*l.ask.Undo
}
