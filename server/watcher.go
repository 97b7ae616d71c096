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

// Pace of the looks at locks that clients watch. A request through this service causes a look at
// once.
const (
	// lookEvery is the time between two looks at one lock.
	lookEvery = 500 * time.Millisecond
	// looksPerSecond bounds the looks at all locks: if more are watched, each is looked at
	// less often.
	looksPerSecond = 1000
)

// watchers watch locks for clients. All clients of one lock share a watcher, which polls: stores
// do not report changes.
type watchers struct {
	s       *Server
	looking context.Context // ends with the service
	end     context.CancelFunc

	mu  sync.Mutex
	all map[string]*watcher
}

func newWatchers(s *Server) *watchers {
	l := &watchers{s: s, all: make(map[string]*watcher)}
	l.looking, l.end = context.WithCancel(context.Background())
	return l
}

// watcher watches one lock while it has clients.
type watcher struct {
	of      *watchers
	key     string
	nudged  chan struct{} // holds one token
	stop    context.CancelFunc
	clients int // guarded by of.mu

	mu     sync.Mutex
	looks  uint64 // that have begun
	seen   sight
	looked chan struct{} // closed when the next look has ended
	next   chan struct{} // closed at the next change
}

// sight is the state of a lock at one look.
type sight struct {
	driver.Snapshot
	err  error
	etag string // empty until it was looked at
	look uint64 // the number of the watcher's look, from 1
}

// interest is the interest of one client in a lock. It counts only looks that begin after it:
// an earlier look may return a state that is older than the one the client has seen.
type interest struct {
	*watcher
	after uint64 // the number of the last look that had begun
}

// watch starts to watch a lock for a client; leave ends that. The lock is looked at soon, even
// if it is watched already, because the last look may be too early for this client.
func (l *watchers) watch(key string) interest {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.all[key]
	if o == nil {
		ctx, cancel := context.WithCancel(context.Background())
		o = &watcher{
			of: l, key: key, nudged: make(chan struct{}, 1), stop: cancel,
			looked: make(chan struct{}), next: make(chan struct{}),
		}
		l.all[key] = o
		o.clients++
		l.s.start(func() { o.run(ctx) })
		return interest{o, 0}
	}
	o.clients++
	o.mu.Lock()
	after := o.looks
	o.mu.Unlock()
	o.nudge()
	return interest{o, after}
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

// nudge makes the watcher of a lock look at once, since the lock may have changed.
func (l *watchers) nudge(key string) {
	l.mu.Lock()
	o := l.all[key]
	l.mu.Unlock()
	if o != nil {
		o.nudge()
	}
}

// pause returns the time between two looks at one lock.
func (l *watchers) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(lookEvery, time.Duration(len(l.all))*time.Second/looksPerSecond)
}

func (o *watcher) nudge() {
	select {
	case o.nudged <- struct{}{}:
	default:
	}
}

// run looks until ctx ends. A look that is under way then is cancelled only when the service
// ends: a cancelled look may close a connection to the store that other requests share.
func (o *watcher) run(ctx context.Context) {
	for ctx.Err() == nil { // select may choose a tick although ctx has ended
		o.mu.Lock()
		o.looks++
		look := o.looks
		o.mu.Unlock()
		now := o.of.s.look(o.of.looking, o.key)
		now.look = look
		o.see(now)
		pause := time.NewTimer(o.of.pause())
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-o.nudged:
		}
		pause.Stop()
	}
}

// see stores a state, and wakes the clients that wait for a look or for a change.
func (o *watcher) see(now sight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := now.etag != o.seen.etag
	if o.seen = now; changed {
		close(o.next)
		o.next = make(chan struct{})
	}
	close(o.looked)
	o.looked = make(chan struct{})
}

// last returns the last state, and a channel that is closed at the next change. Until a look of
// this interest has ended, the state has no etag, and the channel is closed at the end of the
// next look.
func (i interest) last() (sight, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.seen.look <= i.after {
		return sight{}, i.looked
	}
	return i.seen, i.next
}

// look asks the store for the state of a lock.
func (s *Server) look(ctx context.Context, key string) sight {
	store, ok := driver.As[driver.Inspector](s.store)
	if !ok {
		return sight{err: api.NewProblem(Unsupported, "the store cannot be inspected"), etag: "unsupported"}
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

// etag returns a tag of the holders and waiters that does not change by time alone. It is weak,
// since states with the same tag may differ in the remaining time of leases.
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
