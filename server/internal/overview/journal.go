package overview

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Event is something that happened to a lock.
type Event struct {
	At time.Time `json:"at"`
	// Kind is granted, waits, left, released, lost or broken.
	Kind    string `json:"kind"`
	LeaseID string `json:"leaseId"`
	Owner   string `json:"owner,omitempty"`
	// By is who broke a lease, and Reason why.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Waited is how long the grant had to be waited for, and Held how long it lasted.
	Waited int64 `json:"waitedMs,omitempty"`
	Held   int64 `json:"heldMs,omitempty"`
	// Seen tells that it was noticed by looking, some time after it happened.
	Seen bool `json:"seen,omitempty"`
}

// The kinds.
const (
	granted  = "granted"
	waits    = "waits"
	left     = "left"
	released = "released"
	lost     = "lost"
	broken   = "broken"
)

// HandOver is the time from the release of a lock until the next in the queue was told
// that it has it.
type HandOver struct {
	At time.Time `json:"at"`
	Us int64     `json:"us"`
}

// Bounds of the journal.
const (
	maxTracks    = 2048 // locks whose past is kept, those to which something happened last
	maxEvents    = 40   // of each
	maxHandOvers = 32   // of each
)

// track is what has happened to one lock.
type track struct {
	key        string
	events     []Event // the oldest first
	handOvers  []HandOver
	ended      time.Time // when the request began that ended the last lease, until the next grant
	next       grant     // the last grant, if it had to be waited for
	losses     []time.Time
	mismatched time.Time
	version    uint64 // of what past returns
}

// grant is one that a request waited for: from when, and when it was told.
type grant struct {
	began, told time.Time
}

// journal is what has happened since the service started: all that requests did, and
// what looks noticed besides. It is bounded.
type journal struct {
	mu      sync.Mutex
	version uint64 // of the track that changed last
	began   time.Time
	tracks  map[string]*list.Element
	order   *list.List // of *track, the one that changed last in front
	ring    ring
}

func newJournal(now time.Time) *journal {
	return &journal{
		began: now, tracks: make(map[string]*list.Element), order: list.New(),
		ring: newRing(now),
	}
}

// of returns the track of a lock, which is there afterwards. The caller holds mu.
func (j *journal) of(key string) *track {
	if at := j.tracks[key]; at != nil {
		j.order.MoveToFront(at)
		return at.Value.(*track)
	}
	if j.order.Len() >= maxTracks {
		last := j.order.Back()
		delete(j.tracks, last.Value.(*track).key)
		j.order.Remove(last)
	}
	t := &track{key: key}
	j.tracks[key] = j.order.PushFront(t)
	return t
}

// find returns the track of a lock, nil if nothing has happened. The caller holds mu.
func (j *journal) find(key string) *track {
	if at := j.tracks[key]; at != nil {
		return at.Value.(*track)
	}
	return nil
}

// event returns what happened to a lease, nil if nothing of the kind has.
func (t *track) event(kind, id string) *Event {
	for i := len(t.events) - 1; i >= 0; i-- {
		if e := &t.events[i]; e.LeaseID == id && e.Kind == kind {
			return e
		}
	}
	return nil
}

// end returns how a lease ended, nil if that is not known.
func (t *track) end(id string) *Event {
	for i := range t.events {
		if e := &t.events[i]; e.LeaseID == id && (e.Kind == released || e.Kind == lost || e.Kind == broken) {
			return e
		}
	}
	return nil
}

// note adds an event, in place of what was noted of it before unless was is nil. The
// caller holds mu.
func (j *journal) note(t *track, was *Event, e Event) {
	j.changed(t)
	if was != nil {
		*was = e
		return
	}
	if len(t.events) == maxEvents {
		t.events = append(t.events[:0], t.events[1:]...)
	}
	t.events = append(t.events, e)
}

// changed has the pages that show the lock look at its past again. The caller holds mu.
func (j *journal) changed(t *track) {
	j.version++
	t.version = j.version
}

// noted is a number that changes with the past of a lock.
func (j *journal) noted(key string) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.find(key); t != nil {
		return t.version
	}
	return 0
}

// end notes the end of a lease, once. What a request tells of it counts more than what a
// look saw, and the break by an operator more than what the client of the lease was told
// of that: they come in any order.
func (j *journal) end(t *track, e Event) {
	was := t.end(e.LeaseID)
	if was != nil {
		if e.Seen || !was.Seen && (e.By == "" || was.By != "") {
			return
		}
		e.Owner, e.Held = cmp.Or(e.Owner, was.Owner), cmp.Or(e.Held, was.Held)
	}
	if w := t.event(waits, e.LeaseID); w != nil && e.Owner == "" {
		e.Owner = w.Owner
	}
	if g := t.event(granted, e.LeaseID); g != nil {
		if e.Owner == "" {
			e.Owner = g.Owner
		}
		if e.Held == 0 {
			e.Held = e.At.Sub(g.At).Milliseconds()
		}
	}
	if e.Kind != released && (was == nil || was.Kind == released) {
		if len(t.losses) >= manyLosses {
			t.losses = append(t.losses[:0], t.losses[1:]...)
		}
		t.losses = append(t.losses, e.At)
		j.ring.lost(e.Kind, e.At)
	}
	j.note(t, was, e)
}

// Granted notes that a request was told that it has a lock.
func (o *Overview) Granted(key, id, owner string, began, now time.Time, waited bool) {
	o.Nudge(key)
	j := o.log
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.of(key)
	seen := t.event(granted, id)
	if seen != nil && !seen.Seen {
		return
	}
	j.ring.granted(now.Sub(began), seen == nil, now)
	t.next = grant{}
	if waited {
		t.next = grant{began, now}
		j.handOver(t)
	}
	t.ended = time.Time{}
	e := Event{At: now, Kind: granted, LeaseID: id, Owner: owner, Waited: now.Sub(began).Milliseconds()}
	j.note(t, seen, e) // a look may have been faster
}

// handOver notes how long one took once both its sides are known: the end of a lease, and
// the grant that waited for it. Two requests tell of them, in any order.
func (j *journal) handOver(t *track) {
	if !t.ended.After(t.next.began) || !t.ended.Before(t.next.told) {
		return
	}
	if len(t.handOvers) == maxHandOvers {
		t.handOvers = append(t.handOvers[:0], t.handOvers[1:]...)
	}
	t.handOvers = append(t.handOvers, HandOver{t.next.told, t.next.told.Sub(t.ended).Microseconds()})
	j.ring.handedOver(t.next.told)
	j.changed(t)
	t.ended, t.next = time.Time{}, grant{}
}

// Waits notes that a request waits for a lock.
func (o *Overview) Waits(key, id, owner string, now time.Time) {
	o.Nudge(key)
	j := o.log
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.of(key); t.event(waits, id) == nil {
		j.note(t, nil, Event{At: now, Kind: waits, LeaseID: id, Owner: owner})
	}
}

// Renewed notes that a lease was renewed, or that a place in the queue became one.
func (o *Overview) Renewed(key, id string, now time.Time) {
	if began, owner, ok := o.log.renewed(key, id, now); ok {
		o.Granted(key, id, owner, began, now, true)
	}
}

// renewed counts a renewal. Of one that a place in the queue became it returns since when
// who waited.
func (j *journal) renewed(key, id string, now time.Time) (began time.Time, owner string, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring.renewed(now)
	t := j.find(key)
	if t == nil {
		return began, "", false
	}
	w := t.event(waits, id)
	if g := t.event(granted, id); w == nil || g != nil && !g.Seen {
		return began, "", false
	}
	return w.At, w.Owner, true
}

// Released notes that a lease was released. A place in the queue is none.
func (o *Overview) Released(key, id string, state driver.State, began, now time.Time) {
	o.Nudge(key)
	j := o.log
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.of(key)
	switch state {
	case driver.Released:
		t.ended = began
		j.handOver(t)
		j.end(t, Event{At: now, Kind: released, LeaseID: id})
	case driver.Left:
		if t.event(left, id) == nil {
			j.note(t, nil, Event{At: now, Kind: left, LeaseID: id})
		}
	}
}

// Lost notes that a client was told that its lease is gone.
func (o *Overview) Lost(key, id string, wasBroken bool, reason string, now time.Time) {
	o.Nudge(key)
	j := o.log
	j.mu.Lock()
	defer j.mu.Unlock()
	kind := lost
	if wasBroken {
		kind = broken
	}
	j.end(j.of(key), Event{At: now, Kind: kind, LeaseID: id, Reason: reason})
}

// Broken notes that a lease, or a place in the queue, was ended by force.
func (o *Overview) Broken(key, id, by, reason string, state driver.State, began, now time.Time) {
	o.Nudge(key)
	j := o.log
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.of(key)
	e := Event{At: now, Kind: broken, LeaseID: id, By: by, Reason: reason}
	if state == driver.Left {
		e.Kind = left
		if was := t.event(left, id); was == nil || was.By == "" {
			j.note(t, was, e)
		}
		return
	}
	t.ended = began
	j.handOver(t)
	j.end(t, e)
}

// Mismatched notes that a request was refused because another limit is in force.
func (o *Overview) Mismatched(key string, now time.Time) {
	o.Nudge(key)
	j := o.log
	j.mu.Lock()
	defer j.mu.Unlock()
	j.of(key).mismatched = now
}

// compare notes what has changed from one look to the next, as far as no request has
// told of it. ranOut are the leases that were about to end.
func (j *journal) compare(before, after *driver.Snapshot, ranOut map[string]bool, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if same(before, after) {
		return
	}
	t := j.of(after.Key)
	for _, h := range before.Holders {
		if slices.ContainsFunc(after.Holders, func(x driver.Holder) bool { return x.ID == h.ID }) || t.end(h.ID) != nil {
			continue
		}
		e := Event{At: now, Kind: released, LeaseID: h.ID, Owner: h.Owner, Seen: true}
		if !h.Since.IsZero() {
			e.Held = max(now.Sub(h.Since).Milliseconds(), 1)
		}
		if ranOut[h.ID] {
			e.Kind, e.Reason = lost, "its lease ran out"
		}
		j.end(t, e)
	}
	for _, h := range after.Holders {
		if slices.ContainsFunc(before.Holders, func(x driver.Holder) bool { return x.ID == h.ID }) || t.event(granted, h.ID) != nil {
			continue
		}
		e := Event{At: now, Kind: granted, LeaseID: h.ID, Owner: h.Owner, Seen: true}
		for _, w := range before.Waiters {
			if w.ID == h.ID && !w.Since.IsZero() {
				e.Waited = max(now.Sub(w.Since).Milliseconds(), 1)
			}
		}
		j.ring.grantedUntimed(now)
		j.note(t, nil, e)
	}
	for _, w := range after.Waiters {
		if !slices.ContainsFunc(before.Waiters, func(x driver.Waiter) bool { return x.ID == w.ID }) && t.event(waits, w.ID) == nil {
			j.note(t, nil, Event{At: now, Kind: waits, LeaseID: w.ID, Owner: w.Owner, Seen: true})
		}
	}
	for _, w := range before.Waiters {
		stays := slices.ContainsFunc(after.Waiters, func(x driver.Waiter) bool { return x.ID == w.ID })
		holds := slices.ContainsFunc(after.Holders, func(x driver.Holder) bool { return x.ID == w.ID })
		if !stays && !holds && t.event(left, w.ID) == nil && t.event(granted, w.ID) == nil {
			j.note(t, nil, Event{At: now, Kind: left, LeaseID: w.ID, Owner: w.Owner, Seen: true})
		}
	}
}

// past returns what has happened to a lock, the latest first.
func (j *journal) past(key string) (events []Event, handOvers []HandOver) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.find(key); t != nil {
		events, handOvers = slices.Clone(t.events), slices.Clone(t.handOvers)
		slices.Reverse(events)
	}
	return events, handOvers
}

// lossesOf counts the leases of a lock that were lost or broken since then, as far as
// they are remembered.
func (j *journal) lossesOf(key string, since time.Time) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.find(key); t != nil {
		for _, at := range t.losses {
			if at.After(since) {
				n++
			}
		}
	}
	return n
}

func (j *journal) mismatchOf(key string, since time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.find(key)
	return t != nil && t.mismatched.After(since)
}

// quantile is that of sorted values, 0 of none.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// looked notes a request to the store.
func (j *journal) looked(took time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring.looked(took, err, time.Now())
}

// roundTrip notes one that is made only to measure it.
func (j *journal) roundTrip(took time.Duration, err error) { j.looked(took, err) }
