package overview

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// entry is what is known of one lock.
type entry struct {
	key     string
	snap    driver.Snapshot
	at      time.Time // of the look; zero if only the name is known
	asked   time.Time // when a look was last begun
	took    time.Duration
	pass    uint64 // of the listing that named it last
	version uint64 // of what a page shows of it
	err     bool   // the last look failed

	leases map[string]life   // of the holders, by lease id
	queue  [queueSamples]int // how many waited, minute by minute, the latest last
	queued time.Time         // when the latest was noted
	flags  []Flag
}

// life is what looks tell of one lease over time.
type life struct {
	end      time.Time     // as it was seen last
	ttl      time.Duration // the most that was ever left
	renewals int
	renewed  time.Time
}

// maxKept bounds the waiters of one lock that are kept.
const maxKept = 200

// queueSamples is how many counts of a queue are kept, sampleQueue apart.
const (
	queueSamples = 6
	sampleQueue  = 10 * time.Second
)

// seen takes note of a look.
func (o *Overview) seen(key string, snap driver.Snapshot, took time.Duration, now time.Time) {
	snap.Key = key
	sort.Slice(snap.Holders, func(i, j int) bool { // an instance of slices.SortFunc would be 12 kB
		a, b := &snap.Holders[i], &snap.Holders[j]
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) < 0
	})
	waiters := len(snap.Waiters)
	o.mu.Lock()
	e := o.table[key]
	empty := len(snap.Holders) == 0 && waiters == 0 && snap.Closed <= 0
	if e == nil && (empty && o.followed[key] == 0 || len(o.table) >= MaxLocks) {
		o.partial = o.partial || !empty
		o.mu.Unlock()
		return
	}
	if e == nil {
		e = &entry{key: key, pass: o.pass}
		o.table[key] = e
	}
	before, first := e.snap, e.at.IsZero()
	ranOut := e.ranOut(now)
	changed := first || e.err || !same(&before, &snap)
	changed = e.live(&snap, now) || changed
	e.snap, e.at, e.took, e.err = snap, now, took, false
	e.count(waiters, now)
	flags := e.judge(o.log, now)
	if changed || !slices.Equal(flags, e.flags) {
		o.changes++
		e.version = o.changes
	}
	e.flags = flags
	if empty && o.followed[key] == 0 {
		delete(o.table, key)
		o.changes++
	}
	o.mu.Unlock()
	if !first {
		o.log.compare(&before, &snap, ranOut, now)
	}
}

// ranOut are the leases whose time is up since the last look. Of a look that is longer
// ago than a renewal takes nothing follows.
func (e *entry) ranOut(now time.Time) map[string]bool {
	all := make(map[string]bool)
	for id, l := range e.leases {
		if !now.Before(l.end) && now.Sub(e.at) < l.ttl/3 {
			all[id] = true
		}
	}
	return all
}

// failed takes note of a look that the store did not answer.
func (o *Overview) failed(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.table[key]; e != nil && !e.err {
		o.changes++
		e.err, e.version = true, o.changes
	}
}

// live follows the leases of the holders, and reports whether one was renewed.
func (e *entry) live(snap *driver.Snapshot, now time.Time) (renewed bool) {
	leases := make(map[string]life, len(snap.Holders))
	for _, h := range snap.Holders {
		l, known := e.leases[h.ID]
		end := now.Add(h.Remaining)
		// What two looks say of one end differs by how long they took.
		if known && end.Sub(l.end) > max(l.ttl/50, 200*time.Millisecond) {
			l.renewals, l.renewed, renewed = l.renewals+1, now, true
		}
		l.end, l.ttl = end, max(l.ttl, h.Remaining)
		leases[h.ID] = l
	}
	e.leases = leases
	return renewed
}

// count notes how many wait, now and then.
func (e *entry) count(waiters int, now time.Time) {
	for e.queued.IsZero() || now.Sub(e.queued) >= sampleQueue {
		copy(e.queue[:], e.queue[1:])
		if e.queued.IsZero() || now.Sub(e.queued) > queueSamples*sampleQueue {
			e.queue, e.queued = [queueSamples]int{}, now
			for i := range e.queue {
				e.queue[i] = waiters
			}
		} else {
			e.queued = e.queued.Add(sampleQueue)
		}
		e.queue[queueSamples-1] = waiters
	}
	e.queue[queueSamples-1] = waiters
}

// same reports whether two looks show the same holders and waiters.
func same(a, b *driver.Snapshot) bool {
	return a.Token == b.Token && a.Limit == b.Limit && (a.Closed > 0) == (b.Closed > 0) &&
		slices.EqualFunc(a.Holders, b.Holders, func(x, y driver.Holder) bool {
			return x.ID == y.ID && x.Mode == y.Mode && x.Weight == y.Weight && x.Token == y.Token && x.Confirmed == y.Confirmed
		}) &&
		slices.EqualFunc(a.Waiters, b.Waiters, func(x, y driver.Waiter) bool { return x.ID == y.ID })
}

// held is when the oldest lease of the lock began, by the clock of its holder.
func (e *entry) held() (oldest time.Time) {
	for _, h := range e.snap.Holders {
		if !h.Since.IsZero() && (oldest.IsZero() || h.Since.Before(oldest)) {
			oldest = h.Since
		}
	}
	return oldest
}

// waits is since when the first of the queue waits, zero for none.
func (e *entry) waits() (oldest time.Time) {
	for _, w := range e.snap.Waiters {
		if !w.Since.IsZero() && (oldest.IsZero() || w.Since.Before(oldest)) {
			oldest = w.Since
		}
	}
	return oldest
}

// remaining is what is left of the lease that ends first.
func (e *entry) remaining() time.Duration {
	least := time.Duration(-1)
	for _, h := range e.snap.Holders {
		if least < 0 || h.Remaining < least {
			least = h.Remaining
		}
	}
	return least
}

// kind is what sort of lock it looks like. A store keeps rooms and not kinds.
func (e *entry) kind() string {
	shared := func() bool {
		return slices.ContainsFunc(e.snap.Holders, func(h driver.Holder) bool { return h.Mode == driver.Shared }) ||
			slices.ContainsFunc(e.snap.Waiters, func(w driver.Waiter) bool { return w.Mode == driver.Shared })
	}
	switch {
	case e.at.IsZero():
		return "unknown"
	case e.snap.Limit > 0:
		return "semaphore"
	case shared():
		return "read-write"
	}
	return "mutex"
}

// severity is that of the worst flag.
func (e *entry) severity() (worst int) {
	for _, f := range e.flags {
		worst = max(worst, f.rank())
	}
	return worst
}

// contains reports whether the text, in lower case, occurs in the name or in the
// name of a holder or waiter.
func (e *entry) contains(text string) bool {
	if text == "" || strings.Contains(strings.ToLower(e.key), text) {
		return true
	}
	for i := range e.snap.Holders {
		if strings.Contains(strings.ToLower(e.snap.Holders[i].Owner), text) || strings.Contains(strings.ToLower(e.snap.Holders[i].ID), text) {
			return true
		}
	}
	for i := range e.snap.Waiters {
		if strings.Contains(strings.ToLower(e.snap.Waiters[i].Owner), text) {
			return true
		}
	}
	return false
}

// order returns how two entries compare by a column.
func order(column string) func(a, b *entry) int {
	by := func(f func(e *entry) int64) func(a, b *entry) int {
		return func(a, b *entry) int { return cmp.Compare(f(a), f(b)) }
	}
	// What there is none of comes last, whichever way is up.
	switch column {
	case "held":
		return by(func(e *entry) int64 { return -since(e.held()) })
	case "waiters":
		return by(func(e *entry) int64 { return -int64(len(e.snap.Waiters)) })
	case "wait":
		return by(func(e *entry) int64 { return -since(e.waits()) })
	case "lease":
		return by(func(e *entry) int64 {
			if left := e.remaining(); left >= 0 {
				return e.at.Add(left).UnixMilli()
			}
			return 1 << 62
		})
	case "flags":
		return by(func(e *entry) int64 { return -int64(e.severity()) })
	}
	return func(a, b *entry) int { return strings.Compare(a.key, b.key) }
}

// since is comparable for times: the longer ago the greater, 0 for never.
func since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1<<61-t.UnixMilli(), 1)
}
