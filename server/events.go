package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func eventRoutes() []Route {
	return []Route{{
		Method: http.MethodGet, Path: "/v1/events", Operation: "events",
		Summary: "Stream what happens to one's own leases, and to the locks that are named", Verb: Acquire,
		Query: []Parameter{
			{Name: "name", Type: "string", Repeated: true, Description: "a lock of which every change is told; may be repeated"},
		},
		Media:   "text/event-stream",
		Success: []int{http.StatusOK},
		Causes:  []*Cause{TooMany, Unsupported, Unavailable, Draining, Unknown}, handle: (*Server).events,
	}}
}

const (
	// heartbeatEvery is how often a stream says that it is alive, and looks
	// whether hints still arrive.
	heartbeatEvery = 5 * time.Second
	addressEvery   = 500 * time.Millisecond
	// writeTimeout is how long a client may take to read before it is given
	// up.
	writeTimeout = 10 * time.Second
	// backlog is how many events wait for a slow client. One that is slower
	// misses some and is told so.
	backlog = 4096
	// maxNames bounds the locks that one stream tells of.
	maxNames = 100
)

// events streams server-sent events until the client goes.
func (s *Server) events(w *answer, r *http.Request) error {
	names := r.URL.Query()["name"]
	if len(names) > maxNames {
		return newProblem(Invalid, "%d names, more than %d", len(names), maxNames)
	}
	for _, name := range names {
		if err := checkText("name", name, 1, maxName); err != nil {
			return err
		}
		if !w.x.may(Read, name) {
			return forbidden(Read)
		}
	}
	leave, err := s.admit(&w.x, names...)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &stream{w: w, control: http.NewResponseController(w), more: make(chan struct{}, 1)}
	if err := f.listen(s); err != nil {
		return err
	}
	defer f.end()
	for _, name := range names {
		f.watchers.Go(func() { f.follow(ctx, s, name) })
	}
	f.serve(ctx, s.serving.Done())
	return nil
}

// stream is one client that listens.
type stream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	sub      driver.Subscription // nil if the store has none
	watchers sync.WaitGroup

	more chan struct{} // holds a token when there is something in queue

	mu     sync.Mutex
	queue  []event
	missed bool // the queue was full
}

// event is one that waits to be sent.
type event struct {
	name string
	data any
}

// listen subscribes to the store: the stream has an address of its own, so that
// a client that has died is not taken for another.
func (f *stream) listen(s *Server) (err error) {
	if s.desk.watcher == nil {
		return nil
	}
	f.sub, err = s.desk.watcher.Watch(func(h driver.Hint) {
		if h.Kind != driver.HintResync { // the address tells
			f.push(event{wire.HintName(h.Kind), wire.HintOf(h)})
		} else {
			f.push(event{wire.EventReady, nil})
		}
	})
	return err
}

// follow tells of every change of a lock.
func (f *stream) follow(ctx context.Context, s *Server, name string) {
	o := s.lookouts.watch(name)
	defer o.leave()
	for {
		now, next := o.last()
		if now.etag != "" && now.err == nil {
			f.push(event{wire.EventLock, wire.LockOf(now.Snapshot)})
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// push has an event sent. It does not wait for the client.
func (f *stream) push(e event) {
	f.mu.Lock()
	if len(f.queue) < backlog {
		f.queue = append(f.queue, e)
	} else {
		f.missed = true
	}
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// pull takes what waits. A client that has missed something asks again about
// everything.
func (f *stream) pull() []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.queue
	if f.missed {
		queue = append(queue, event{wire.EventReady, nil})
	}
	f.queue, f.missed = nil, false
	return queue
}

// serve sends until the client has gone, is too slow, or the service ends.
func (f *stream) serve(ctx context.Context, draining <-chan struct{}) {
	h := f.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy holds the events back
	f.w.WriteHeader(http.StatusOK)
	address := f.address()
	if f.send([]event{{wire.EventReady, nil}}) != nil {
		return
	}
	beat, look := time.NewTicker(heartbeatEvery), time.NewTicker(addressEvery)
	defer beat.Stop()
	defer look.Stop()
	for {
		var err error
		select {
		case <-f.more:
			err = f.send(f.pull())
		case <-look.C:
			if now := f.address(); now != address {
				address = now
				err = f.send([]event{{wire.EventReady, nil}})
			}
		case <-beat.C:
			err = f.write([]byte(":\n\n"))
		case <-ctx.Done():
			return
		case <-draining:
			return
		}
		if err != nil {
			return
		}
	}
}

func (f *stream) address() string {
	if f.sub == nil {
		return ""
	}
	return f.sub.Address()
}

// send writes events. Ready carries the address as it is now.
func (f *stream) send(events []event) error {
	var b bytes.Buffer
	for _, e := range events {
		if e.name == wire.EventReady {
			e.data = wire.Ready{Address: f.address()}
		}
		data, err := json.Marshal(e.data)
		if err != nil {
			return err
		}
		b.WriteString("event: " + e.name + "\ndata: ")
		b.Write(data)
		b.WriteString("\n\n")
	}
	return f.write(b.Bytes())
}

func (f *stream) write(b []byte) error {
	if err := f.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := f.w.Write(b); err != nil {
		return err
	}
	return f.control.Flush()
}

// end ends what serves the stream.
func (f *stream) end() {
	if f.sub != nil {
		_ = f.sub.Close() // nobody is told any more
	}
	f.watchers.Wait()
	_ = f.control.SetWriteDeadline(time.Time{}) // the connection may go on
}
