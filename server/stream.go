package server

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
)

const (
	// backlog is the maximum number of events that wait for a slow client. If there are more,
	// the client misses some and gets the event ready instead.
	backlog = 4096
	// backlogBytes bounds the states of locks in the backlog, as JSON: a lock may have thousands
	// of holders with labels. The newest state is kept at any size.
	backlogBytes = 4 << 20
	// replay is the number of events that are kept after they were sent, for a client that did
	// not read them.
	replay = 256
	// lingerFor is how long a stream waits for a client that was disconnected.
	lingerFor = 15 * time.Second
)

// stream holds the events for one client, which may read them by several connections, one after
// the other.
type stream struct {
	id, of string              // of is the client with its locks
	sub    driver.Subscription // nil if the store has none
	stops  []func()            // of watches
	leave  func()              // the quota
	ended  sync.Once
	more   chan struct{} // holds a token when there are events to send

	mu    sync.Mutex
	log   []message
	bytes int    // of the states of locks in log
	first uint64 // the number of the first event in log, from 1

	// Guarded by the mu of streams.
	taken chan struct{} // closed when the client has come back by another connection
	timer *time.Timer   // ends the stream; nil while a connection has it
}

// message is one server-sent event.
type message struct {
	name string
	data any
}

// size returns the size of the event for backlogBytes.
func (e message) size() int {
	text, _ := e.data.(json.RawMessage)
	return len(text)
}

// newStream subscribes to the store. Each stream has an address of its own, so that hints for a
// client that has died do not reach another client.
func (s *Server) newStream(x *Exchange, of string, names []string) (_ *stream, err error) {
	f := &stream{id: rand.Text(), of: of, more: make(chan struct{}, 1), first: 1}
	if f.leave, err = s.admit(x, names...); err != nil {
		return nil, err
	}
	f.push(message{wire.EventReady, nil})
	if watcher, ok := driver.As[driver.Watcher](s.store); ok {
		f.sub, err = watcher.Watch(f.hint)
	}
	if err != nil {
		f.leave()
		return nil, timing.OfRead(err)
	}
	for _, name := range names {
		f.stops = append(f.stops, s.watchers.watch(name, f.changed))
	}
	return f, nil
}

func (f *stream) hint(h driver.Hint) {
	if h.Kind == driver.HintResync { // ready has the same meaning
		f.push(message{wire.EventReady, nil})
		return
	}
	f.push(message{wire.HintName(h.Kind), wire.HintOf(h)})
}

// isFor reports whether a client may receive the event. The store announces a break to all
// streams; only clients that may take or read the lock receive it. It compares the rights when
// the event is sent, since they may have changed after it was stored.
func (e message) isFor(x *Exchange) bool {
	h, ok := e.data.(wire.Hint)
	return !ok || e.name != wire.EventBroken || x.may(auth.Acquire, h.Key) || x.may(auth.Read, h.Key)
}

// changed pushes the state of a lock.
func (f *stream) changed(now sight) {
	if now.err == nil {
		f.push(message{wire.EventLock, now.text()})
	}
}

// push adds an event to the stream. It does not wait for the client.
func (f *stream) push(e message) {
	f.mu.Lock()
	f.bytes += e.size()
	for len(f.log) == backlog || len(f.log) > 0 && f.bytes > backlogBytes {
		f.drop(1)
	}
	f.log = append(f.log, e)
	f.mu.Unlock()
	f.wake()
}

// drop removes the first n events. The caller holds mu.
func (f *stream) drop(n int) {
	for i := range n {
		f.bytes -= f.log[i].size()
		f.log[i] = message{} // the array outlives it
	}
	f.log, f.first = f.log[n:], f.first+uint64(n)
}

// wake wakes the connection of the stream, to look for events.
func (f *stream) wake() {
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// pull returns the events from number next on, or from the first that is still stored, and the
// number of the first event that it returns.
func (f *stream) pull(next uint64) (events []message, first uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if most := int(max(next, f.first+replay) - f.first - replay); most > 0 {
		f.drop(min(most, len(f.log)))
		f.log = append([]message(nil), f.log...)
	}
	first = max(next, f.first)
	if at := first - f.first; at < uint64(len(f.log)) {
		events = append(events, f.log[at:]...)
	}
	return events, first
}

func (f *stream) address() string {
	if f.sub == nil {
		return ""
	}
	return f.sub.Address()
}

// end ends the subscription and the watches of the stream. Further calls wait for the first.
func (f *stream) end() {
	f.ended.Do(func() {
		for _, stop := range f.stops {
			stop()
		}
		if f.sub != nil {
			_ = f.sub.Close() // an error changes nothing
		}
		f.leave()
	})
}

// streams holds the streams that have a client, or to which a client may return.
type streams struct {
	mu  sync.Mutex
	all map[string]*stream // by id
}

// add adds a new stream, with its first connection. taken is closed when another connection
// resumes the stream.
func (s *streams) add(f *stream) (taken chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.taken = make(chan struct{})
	s.all[f.id] = f
	return f.taken
}

// resume returns the stream of the event with the id last, and the number of the event after it.
// It returns nil if the stream has ended, or belongs to another client.
func (s *streams) resume(last, of string) (_ *stream, next uint64, taken chan struct{}) {
	id, number, _ := strings.Cut(last, ".")
	n, err := strconv.ParseUint(number, 10, 63)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[id]
	if err != nil || f == nil || f.of != of || f.timer != nil && !f.timer.Stop() {
		return nil, 0, nil
	}
	if f.timer == nil {
		close(f.taken) // the end of the old connection has not been noticed yet
	}
	f.timer, f.taken = nil, make(chan struct{})
	f.wake()
	return f, n + 1, f.taken
}

// leave ends a connection. Its stream waits for the client to return, unless the client has
// returned already or last is true.
func (s *streams) leave(f *stream, taken chan struct{}, last bool) {
	if last {
		s.end(f)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.taken != taken {
		f.wake() // this connection may have taken the token of the new one
		return
	}
	f.timer = time.AfterFunc(lingerFor, func() { s.end(f) })
}

// end ends a stream whose client has not returned.
func (s *streams) end(f *stream) {
	s.mu.Lock()
	delete(s.all, f.id)
	s.mu.Unlock()
	f.end()
}

// close ends all streams. Their connections were closed before.
func (s *streams) close() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, f := range all {
		s.end(f)
	}
}
