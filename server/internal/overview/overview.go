// Package overview knows all locks of a store as well as a bounded number of looks
// tells: what a page for people shows of them, what is odd about them, and what has
// happened to them.
//
// A store does not tell of changes, so its locks are looked at again and again. All
// pages share these looks: they are bounded by [LooksPerSecond], whatever the number of
// pages and of locks, and there are none while no page is open. A lock that a request
// has changed is looked at first, then those that a page shows, and then all others in
// turn.
package overview

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Bounds of what an overview keeps and asks.
const (
	// LooksPerSecond bounds the requests that all pages together cause in the store.
	LooksPerSecond = 200
	// MaxLocks bounds the locks that are known at a time.
	MaxLocks = 200_000
	// MaxRows bounds the locks that one page shows at a time.
	MaxRows = 200

	// linger is how long the looks go on after the last page was closed.
	linger = 10 * time.Second
	// sampleEvery is the length of one interval of the charts.
	sampleEvery = 10 * time.Second
	// checkEvery is how often a store is asked what makes locks in it unsafe.
	checkEvery = time.Minute
)

// Overview is what a service knows of the locks of its store. It is safe for
// concurrent use.
type Overview struct {
	store   driver.Driver
	timeout time.Duration // of one look
	log     *journal
	out     *slog.Logger
	defects defects

	mu        sync.Mutex
	table     map[string]*entry
	changes   uint64 // counted, so that a view knows whether it is still as it was
	partial   bool   // there are more locks than are kept
	pass      uint64 // how often the store has been listed to its end
	views     map[viewKey]*view
	followed  map[string]int // locks that a page shows alone
	followers map[string]map[*follower]bool
	pages     int
	idleSince time.Time // the last page was closed; meaningful while pages is 0
	awake     chan struct{}
	listed    bool      // the last listing came to its end
	failing   bool      // it did not: the store did not answer
	backlog   []string  // locks whose turn it is, though no page shows them
	gathered  time.Time // when backlog was filled

	nudgeMu sync.Mutex
	nudged  []string
	known   map[string]bool // those in nudged

	health   health
	presence presence
}

// New returns the overview of a store. Run keeps it up to date. Each look at the store
// ends after timeout. What fails in the store's code is logged.
func New(store driver.Driver, timeout time.Duration, log *slog.Logger) *Overview {
	return &Overview{
		store: store, timeout: timeout, log: newJournal(time.Now()), out: log,
		table: make(map[string]*entry), views: make(map[viewKey]*view), followed: make(map[string]int),
		followers: make(map[string]map[*follower]bool),
		known:     make(map[string]bool), awake: make(chan struct{}, 1),
	}
}

// Supported reports whether the store can be looked into.
func (o *Overview) Supported() bool {
	_, ok := driver.As[driver.Inspector](o.store)
	return ok
}

// open counts a page, until the function that it returns is called.
func (o *Overview) open() (leave func()) {
	o.mu.Lock()
	o.pages++
	o.mu.Unlock()
	select {
	case o.awake <- struct{}{}:
	default:
	}
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.pages--; o.pages == 0 {
			o.idleSince = time.Now()
		}
	})
}

// watched reports whether a page is open, or was a moment ago.
func (o *Overview) watched() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pages > 0 || time.Since(o.idleSince) < linger
}

// setListed notes whether the store has named all locks, or has failed to.
func (o *Overview) setListed(all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listed != all || o.failing == all {
		o.listed, o.failing = all, !all
		o.changes++
	}
}

// forget drops what nobody looks at any more. What has happened stays known.
func (o *Overview) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pages == 0 {
		o.table, o.partial, o.listed, o.failing, o.backlog = make(map[string]*entry), false, false, false, nil
		o.changes++
	}
}

// Nudge has a lock looked at soon that a request may have changed. It costs next to
// nothing while no page is open.
func (o *Overview) Nudge(key string) {
	o.nudgeMu.Lock()
	defer o.nudgeMu.Unlock()
	if o.known == nil || o.known[key] || len(o.nudged) >= maxNudged {
		return
	}
	o.known[key] = true
	o.nudged = append(o.nudged, key)
}

// maxNudged bounds the locks that are to be looked at first. One that is left out is
// looked at in its turn.
const maxNudged = 4096

// takeNudged returns at most n of them, the oldest first.
func (o *Overview) takeNudged(n int) []string {
	o.nudgeMu.Lock()
	defer o.nudgeMu.Unlock()
	n = min(n, len(o.nudged))
	keys := o.nudged[:n:n]
	o.nudged = o.nudged[n:]
	for _, key := range keys {
		delete(o.known, key)
	}
	return keys
}

// dropNudged forgets them: nobody looks.
func (o *Overview) dropNudged() {
	o.nudgeMu.Lock()
	defer o.nudgeMu.Unlock()
	o.nudged = nil
	clear(o.known)
}

// Run keeps the overview up to date until ctx ends.
func (o *Overview) Run(ctx context.Context) {
	beat := time.NewTicker(sampleEvery)
	defer beat.Stop()
	defer o.depart(ctx)
	o.sample(ctx)
	for ctx.Err() == nil {
		if o.watched() {
			o.sample(ctx) // the other services are told that a page is open
			o.look(ctx, beat)
			o.forget()
		}
		o.dropNudged()
		select {
		case <-ctx.Done():
		case <-beat.C:
			o.sample(ctx)
		case <-o.awake:
		}
	}
}

// sample measures one round trip to the store: the charts have it of the time before
// the page was opened, too.
func (o *Overview) sample(ctx context.Context) {
	snap, err := o.glance(ctx)
	if err == nil {
		o.attend(ctx, o.watched(), snap.Holders)
	}
}

func (o *Overview) glance(ctx context.Context) (snap driver.Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	sent := time.Now()
	err = o.guarded(func() (err error) {
		snap, err = driver.Glance(ctx, o.store, presenceKey)
		return err
	})
	if ctx.Err() == nil || err == nil {
		o.log.roundTrip(time.Since(sent), err)
	} else {
		o.log.roundTrip(o.timeout, err)
	}
	return snap, err
}

// errDefect is what a look yields in which the store's code panicked.
var errDefect = errors.New("the store's code has failed")

// defectEvery is how often a defect is logged: each look may have the same.
const defectEvery = time.Minute

// defects is when the last one was logged.
type defects struct {
	mu sync.Mutex
	at time.Time
}

// guarded asks the store. A panic in it fails this look, and not the service: nobody
// asked for the look, and the locks of others do not depend on it.
func (o *Overview) guarded(ask func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		err = errDefect
		if o.defects.due(time.Now()) {
			o.out.Error("leasehold: a look at the store failed", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	return ask()
}

func (d *defects) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() && now.Sub(d.at) < defectEvery {
		return false
	}
	d.at = now
	return true
}
