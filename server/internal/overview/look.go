package overview

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// How often a lock is looked at that nothing is known to have happened to, if there
// are few enough.
const (
	followedEvery = 500 * time.Millisecond // one that a page shows alone
	shownEvery    = time.Second            // one in the rows of a page
	otherEvery    = 5 * time.Second
	listEvery     = 3 * time.Second // from the end of a listing to the next, or five times what one lasts
	turnEvery     = 100 * time.Millisecond
	parallel      = 4 // looks at a time, for stores that are far away
)

// look looks at the store while a page is open.
func (o *Overview) look(ctx context.Context, beat *time.Ticker) {
	store, ok := driver.As[driver.Inspector](o.store)
	if !ok {
		return
	}
	l := looker{o: o, store: store}
	turn := time.NewTicker(turnEvery)
	defer turn.Stop()
	const each = int(LooksPerSecond * turnEvery / time.Second)
	for o.watched() {
		l.turn(ctx, each)
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			o.sample(ctx)
		case <-turn.C:
		}
	}
}

// looker is what looks, while a page is open.
type looker struct {
	o       *Overview
	store   driver.Inspector
	cursor  string
	listing bool
	began   time.Time
	listed  time.Time // the end of the last listing
	lasted  time.Duration
	checked time.Time
}

// turn asks the store at most n times.
func (l *looker) turn(ctx context.Context, n int) {
	now := time.Now()
	if now.Sub(l.checked) >= checkEvery {
		l.checked = now
		l.check(ctx)
	}
	// One request for names has the store examine hundreds of keys.
	if l.listing || now.Sub(l.listed) >= max(listEvery, 5*l.lasted) {
		n--
		l.list(ctx)
	}
	keys := l.o.takeNudged(n)
	if rest := n - len(keys); rest > 0 {
		keys = append(keys, l.o.due(now, rest, keys)...)
	}
	l.inspect(ctx, keys)
	l.o.refresh()
}

// list asks for one more page of names.
func (l *looker) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.o.timeout)
	defer cancel()
	if !l.listing {
		l.listing, l.cursor, l.began = true, "", time.Now()
		l.o.mu.Lock()
		l.o.pass++
		l.o.mu.Unlock()
	}
	sent := time.Now()
	var keys []string
	var next string
	err := l.o.guarded(func() (err error) {
		keys, next, err = l.store.List(ctx, "", l.cursor)
		return err
	})
	l.o.log.looked(time.Since(sent), err)
	if err != nil {
		l.listing, l.listed = false, time.Now()
		l.o.setListed(false)
		return
	}
	l.o.named(keys)
	if l.cursor = next; next != "" {
		return
	}
	l.listing, l.listed = false, time.Now()
	l.lasted = l.listed.Sub(l.began)
	l.o.missed()
}

// inspect looks at some locks.
func (l *looker) inspect(ctx context.Context, keys []string) {
	work := make(chan string)
	var all sync.WaitGroup
	for range min(parallel, len(keys)) {
		all.Go(func() {
			for key := range work {
				l.inspectOne(ctx, key)
			}
		})
	}
	for _, key := range keys {
		work <- key
	}
	close(work)
	all.Wait()
}

func (l *looker) inspectOne(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, l.o.timeout)
	defer cancel()
	sent := time.Now()
	var snap driver.Snapshot
	err := l.o.guarded(func() (err error) {
		snap, err = l.store.Inspect(ctx, key)
		return err
	})
	l.o.log.looked(time.Since(sent), err)
	if err != nil {
		l.o.failed(key)
		return
	}
	l.o.seen(key, snap, time.Since(sent), time.Now())
}

// check asks the store what makes locks in it unsafe.
func (l *looker) check(ctx context.Context) {
	checker, ok := driver.As[driver.Checker](l.o.store)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.timeout)
	defer cancel()
	var report driver.Report
	err := l.o.guarded(func() (err error) {
		report, err = checker.Check(ctx)
		return err
	})
	l.o.health.set(report, err, time.Now())
	l.o.mu.Lock()
	l.o.changes++ // views show what is unsafe
	l.o.mu.Unlock()
}

// named takes note of the names of a listing.
func (o *Overview) named(keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		if key == presenceKey { // Health shows it
			continue
		}
		e := o.table[key]
		if e == nil {
			if len(o.table) >= MaxLocks {
				o.partial = true
				return
			}
			o.changes++
			e = &entry{key: key, version: o.changes}
			o.table[key] = e
		}
		e.pass = o.pass
	}
}

// missed has the locks looked at again that a whole listing did not name: they have
// probably ended.
func (o *Overview) missed() {
	var gone []string
	o.mu.Lock()
	for key, e := range o.table {
		if e.pass < o.pass {
			gone = append(gone, key)
		}
	}
	o.mu.Unlock()
	for _, key := range gone {
		o.Nudge(key)
	}
	o.setListed(true)
}

// due returns at most n locks whose turn it is, those that pages show first.
func (o *Overview) due(now time.Time, n int, but []string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	type wish struct {
		e    *entry
		late time.Duration
	}
	var shown, others []wish
	interest := make(map[*entry]time.Duration)
	for key := range o.followed {
		e := o.table[key]
		if e == nil {
			e = &entry{key: key, pass: o.pass}
			o.table[key] = e
		}
		interest[e] = followedEvery
	}
	for _, v := range o.views {
		for _, e := range v.rows {
			if o.table[e.key] == e && interest[e] == 0 {
				interest[e] = shownEvery
			}
		}
	}
	for e, every := range interest {
		// A queue of thousands takes the store some time to show.
		if late := now.Sub(e.asked) - max(every, 20*e.took); late >= 0 {
			shown = append(shown, wish{e, late})
		}
	}
	slices.SortFunc(shown, func(a, b wish) int { return cmp.Compare(b.late, a.late) })
	// Pages leave a quarter to the others, which would otherwise never be seen.
	shown = shown[:min(len(shown), max(n*3/4, 1))]
	keys := make([]string, 0, n)
	take := func(e *entry) {
		if e.asked = now; !slices.Contains(but, e.key) {
			keys = append(keys, e.key)
		}
	}
	for _, w := range shown {
		take(w.e)
	}
	if len(o.backlog) == 0 && now.Sub(o.gathered) >= time.Second { // it reads the whole table
		for _, e := range o.table {
			if late := now.Sub(e.asked) - max(otherEvery, 100*e.took); late >= 0 {
				others = append(others, wish{e, late})
			}
		}
		for _, w := range oldest(others, LooksPerSecond, func(w wish) time.Duration { return w.late }) {
			o.backlog = append(o.backlog, w.e.key)
		}
		o.gathered = now
	}
	for len(keys) < n && len(o.backlog) > 0 {
		e := o.table[o.backlog[0]]
		o.backlog = o.backlog[1:]
		if e != nil && now.Sub(e.asked) >= otherEvery {
			take(e)
		}
	}
	return keys
}

// oldest returns the n with the greatest age, without sorting all.
func oldest[T any](all []T, n int, age func(T) time.Duration) []T {
	if n <= 0 {
		return nil
	}
	if len(all) <= n {
		return all
	}
	best := slices.Clone(all[:n])
	slices.SortFunc(best, func(a, b T) int { return cmp.Compare(age(b), age(a)) })
	for _, t := range all[n:] {
		if age(t) <= age(best[n-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, t, func(a, b T) int { return cmp.Compare(age(b), age(a)) })
		best = slices.Insert(best[:n-1], at, t)
	}
	return best
}
