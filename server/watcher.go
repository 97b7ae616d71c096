package server

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/server/internal/api"
)

// lookEvery is how often a lock that somebody watches is looked at. What passes
// through this service is seen at once.
const lookEvery = 500 * time.Millisecond

// watchers watch locks for clients, one for each lock whatever the number of
// clients. Stores do not tell of changes, so they look again and again.
type watchers struct {
	s *Server

	mu  sync.Mutex
	all map[string]*watcher
}

// watcher watches one lock while anybody is interested.
type watcher struct {
	of      *watchers
	key     string
	nudged  chan struct{} // holds one token
	stop    context.CancelFunc
	clients int // guarded by of.mu

	mu   sync.Mutex
	seen sight
	next chan struct{} // closed at the next change
}

// sight is what a lock looked like.
type sight struct {
	driver.Snapshot
	err  error
	etag string // empty until it was looked at
}

// watch returns the watcher of a lock, which the caller leaves.
func (l *watchers) watch(key string) *watcher {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.all[key]
	if o == nil {
		ctx, cancel := context.WithCancel(context.Background())
		o = &watcher{of: l, key: key, nudged: make(chan struct{}, 1), stop: cancel, next: make(chan struct{})}
		l.all[key] = o
		l.s.start(func() { o.run(ctx) })
	}
	o.clients++
	return o
}

// leave ends the interest of one client.
func (o *watcher) leave() {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.clients--; o.clients == 0 {
		delete(o.of.all, o.key)
		o.stop()
	}
}

// nudge has a lock looked at that may have changed.
func (l *watchers) nudge(key string) {
	l.mu.Lock()
	o := l.all[key]
	l.mu.Unlock()
	if o == nil {
		return
	}
	select {
	case o.nudged <- struct{}{}:
	default:
	}
}

// run looks until nobody is interested.
func (o *watcher) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		o.see(o.of.s.look(ctx, o.key))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-o.nudged:
		}
	}
}

// see tells those who wait for a change.
func (o *watcher) see(now sight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := now.etag != o.seen.etag
	if o.seen = now; changed {
		close(o.next)
		o.next = make(chan struct{})
	}
}

// last returns what was seen last, and a channel that is closed when something
// else is.
func (o *watcher) last() (sight, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen, o.next
}

// look asks the store what a lock looks like.
func (s *Server) look(ctx context.Context, key string) sight {
	store, ok := driver.As[driver.Inspector](s.store)
	if !ok {
		return sight{err: api.NewProblem(Unsupported, "the store cannot be looked into"), etag: "unsupported"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.storeTimeout)
	defer cancel()
	snap, err := store.Inspect(ctx, key)
	if err != nil {
		return sight{err: timing.OfRead(err), etag: "error"}
	}
	snap.Key = key
	return sight{Snapshot: snap, etag: etag(&snap)}
}

// etag names who holds and who waits, and nothing that time alone changes. The
// tag is weak: what remains of leases differs.
func etag(s *driver.Snapshot) string {
	h := fnv.New64a()
	for _, p := range s.Holders {
		_, _ = fmt.Fprintln(h, p.ID, p.Owner, p.Token, p.Mode, p.Weight, p.Confirmed)
	}
	for _, p := range s.Waiters {
		_, _ = fmt.Fprintln(h, p.Position, p.ID)
	}
	_, _ = fmt.Fprintln(h, s.Token, s.Limit, s.Closed > 0)
	return fmt.Sprintf(`W/"%016x"`, h.Sum64())
}
