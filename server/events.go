package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
)

func eventRoutes() []route {
	return []route{{Handle: (*Server).events, Route: Route{
		Method: http.MethodGet, Path: "/v1/events", Operation: "events",
		Summary: "Stream hints for the client's tickets, breaks of leases of the locks that it may acquire or read, and changes of the named locks", Verb: auth.Acquire,
		Query: []Parameter{
			{Name: "name", Type: "string", Repeated: true, Description: "a lock whose changes are sent; may be repeated"},
			{Name: "Last-Event-ID", Type: "string", Header: true, Description: "the id of the last event that was read: the stream continues after it, with the same address, if the connection ended less than 15 s ago and was to the same replica"},
		},
		Media:   "text/event-stream",
		Success: []int{http.StatusOK},
		Causes:  []*Cause{TooMany, Unsupported, Unavailable, Draining},
	}}}
}

const (
	// heartbeatEvery is the time between two heartbeats of a stream, which also check that the
	// client may still receive it.
	heartbeatEvery = 5 * time.Second
	addressEvery   = 500 * time.Millisecond
	// maxNames bounds the locks of one stream.
	maxNames = 100
)

// events streams server-sent events until the client goes. A client that returns soon receives
// the events that it has missed.
func (s *Server) events(w *answer, r *http.Request) error {
	names := r.URL.Query()["name"]
	if len(names) > maxNames {
		return newProblem(Invalid, "%d names, more than %d", len(names), maxNames)
	}
	for _, name := range names {
		if err := check.Text("name", name, 1, check.MaxKey); err != nil {
			return err
		}
	}
	if err := readable(&w.x, names); err != nil {
		return err
	}
	if s.isDraining() {
		return errDraining // the address would end with the service
	}
	of := w.x.Client() + "\n" + strings.Join(names, "\n")
	f, next, taken := s.streams.resume(r.Header.Get("Last-Event-ID"), of)
	if f == nil {
		var err error
		if f, err = s.newStream(&w.x, of, names); err != nil {
			return err
		}
		taken = s.streams.add(f)
	}
	l := listening{w: w, control: http.NewResponseController(w), f: f, next: next, rights: func() error {
		w.x.Err = cmp.Or(s.again(&w.x, r), readable(&w.x, names))
		return w.x.Err
	}}
	l.serve(r.Context(), s.serving.Done(), taken)
	s.streams.leave(f, taken, s.isDraining())
	return nil
}

// readable returns a problem if the principal may not read all of the locks.
func readable(x *Exchange, names []string) error {
	for _, name := range names {
		if !x.may(auth.Read, name) {
			return forbidden(auth.Read)
		}
	}
	return nil
}

// listening is a connection by which a client reads a stream.
type listening struct {
	w       *answer
	control *http.ResponseController
	rights  func() error // returns, and sets for the log, an error if the client may no longer read the stream
	f       *stream
	next    uint64 // the number of the event that is sent next
	ready   bool   // the client has received an address
}

// serve sends until the client has gone, is too slow, has lost its rights, has returned by
// another connection, or the service ends. It compares the rights before it sends events, and at
// each heartbeat, so that a stream without events ends too.
func (l *listening) serve(ctx context.Context, draining, taken <-chan struct{}) {
	h := l.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy would hold the events back otherwise
	l.w.WriteHeader(http.StatusOK)
	l.ready = l.next > 0
	address := l.f.address()
	if l.send() != nil || l.write([]byte(":\n\n")) != nil { // sends the header even if there is no event yet
		return
	}
	defer func() { _ = l.control.SetWriteDeadline(time.Time{}) }() // the connection may go on
	beat, look := time.NewTicker(heartbeatEvery), time.NewTicker(addressEvery)
	defer beat.Stop()
	defer look.Stop()
	for {
		var err error
		select {
		case <-l.f.more:
			if err = l.rights(); err == nil {
				err = l.send()
			}
		case <-look.C:
			if now := l.f.address(); now != address {
				address = now
				l.f.push(message{wire.EventReady, nil})
			}
		case <-beat.C:
			if err = l.rights(); err == nil {
				err = l.write([]byte(":\n\n"))
			}
		case <-ctx.Done():
			return
		case <-taken:
			return
		case <-draining:
			return
		}
		if err != nil {
			return
		}
	}
}

// send writes the events that wait, without those that the client may not receive. Ready has the
// present address, and is left out while there is no address.
func (l *listening) send() error {
	events, first := l.f.pull(l.next)
	if first > l.next && l.next > 0 { // some were dropped: after ready the client asks about all its locks
		events = append([]message{{wire.EventReady, nil}}, events...)
		first--
	}
	var b bytes.Buffer
	for i, e := range events {
		l.next = first + uint64(i) + 1
		if !e.isFor(&l.w.x) {
			continue
		}
		if e.name == wire.EventReady {
			address := l.f.address()
			if l.ready = l.ready || address != ""; !l.ready {
				continue
			}
			e.data = wire.Ready{Address: address}
		}
		data, err := json.Marshal(e.data)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "event: %s\nid: %s.%d\ndata: %s\n\n", e.name, l.f.id, l.next-1, data)
	}
	if b.Len() == 0 {
		return nil
	}
	return l.write(b.Bytes())
}

func (l *listening) write(b []byte) error {
	if err := l.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := l.w.Write(b); err != nil {
		return err
	}
	return l.control.Flush()
}
