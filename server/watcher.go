package server

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
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
	s *Server

	mu  sync.Mutex
	all map[string]*watcher
}

// watcher watches one lock while it has clients. The mu of watchers guards it.
type watcher struct {
	key     string
	nudged  chan struct{} // holds one token
	looks   uint64        // that have begun
	clients map[*interest]struct{}
	stop    context.CancelFunc
}

// sight is the state of a lock at one look.
type sight struct {
	driver.Snapshot
	err  error
	etag string
	text func() json.RawMessage // of the event, for all streams; nil after an error
}

// interest is the interest of one client in a lock. It counts only looks that begin after it:
// an earlier look may return a state that is older than the one the client has seen.
type interest struct {
	after   uint64 // the number of the last look that had begun
	etag    string // of the last state that was passed to changed; empty before the first
	changed func(sight)
}

// watch calls changed soon with the state of a lock, and at each change until stop is called. All
// calls come from one goroutine; changed must not wait. The lock is looked at soon even if it is
// watched already, because the last look may be too early for this client.
func (l *watchers) watch(key string, changed func(sight)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.all[key]
	if o == nil {
		o = &watcher{key: key, nudged: make(chan struct{}, 1), clients: make(map[*interest]struct{})}
		l.all[key] = o
		ctx, cancel := context.WithCancel(l.s.alive)
		o.stop = cancel
		l.s.start(func() { l.run(ctx, o) })
	}
	i := &interest{after: o.looks, changed: changed}
	o.clients[i] = struct{}{}
	o.nudge()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(o.clients, i); len(o.clients) == 0 {
			delete(l.all, key)
			o.stop()
		}
	}
}

// nudge makes the watcher of a lock look at once, since the lock may have changed.
func (l *watchers) nudge(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.all[key]; o != nil {
		o.nudge()
	}
}

func (o *watcher) nudge() {
	select {
	case o.nudged <- struct{}{}:
	default:
	}
}

// run looks at a lock until ctx ends. A look that is under way then is cancelled only when the
// service ends: a cancelled look may close a connection to the store that other requests share.
func (l *watchers) run(ctx context.Context, o *watcher) {
	for {
		select {
		case <-ctx.Done():
		case <-time.After(l.pause()):
		case <-o.nudged:
		}
		if ctx.Err() != nil { // select may choose a tick although ctx has ended
			return
		}
		look := l.begin(o)
		now := l.s.look(l.s.alive, o.key)
		for _, i := range l.due(o, look, now.etag) {
			i.changed(now)
		}
	}
}

// pause returns the time between two looks at one lock.
func (l *watchers) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(lookEvery, time.Duration(len(l.all))*time.Second/looksPerSecond)
}

// begin returns the number of a look that begins.
func (l *watchers) begin(o *watcher) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.looks++
	return o.looks
}

// due returns the clients for which the state of a look is new.
func (l *watchers) due(o *watcher, look uint64, etag string) (clients []*interest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range o.clients {
		if look > i.after && etag != i.etag {
			i.etag = etag
			clients = append(clients, i)
		}
	}
	return clients
}

// look asks the store for the state of a lock.
func (s *Server) look(ctx context.Context, key string) sight {
	store, ok := driver.As[driver.Inspector](s.store)
	if !ok {
		return sight{err: newProblem(Unsupported, "the store cannot be inspected"), etag: "unsupported"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.storeTimeout)
	defer cancel()
	snap, err := store.Inspect(ctx, key)
	if err != nil {
		return sight{err: timing.OfRead(err), etag: "error"}
	}
	snap.Key = key
	return sight{Snapshot: snap, etag: etag(&snap), text: sync.OnceValue(func() json.RawMessage {
		text, _ := json.Marshal(wire.LockOf(snap)) // every state can be encoded
		return text
	})}
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
