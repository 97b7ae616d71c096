package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/api"
	"github.com/leasehold-go/leasehold/server/internal/check"
)

func eventRoutes() []route {
	return []route{{Handle: (*Server).events, Route: Route{
		Method: http.MethodGet, Path: "/v1/events", Operation: "events",
		Summary: "Stream what happens to one's own leases, and to the locks that are named", Verb: auth.Acquire,
		Query: []Parameter{
			{Name: "name", Type: "string", Repeated: true, Description: "a lock of which every change is told; may be repeated"},
			{Name: "Last-Event-ID", Type: "string", Header: true, Description: "the id of the last event that was read: the stream goes on behind it, with the same address, if it was lost less than 15 s ago and by way of the same replica"},
		},
		Media:   "text/event-stream",
		Success: []int{http.StatusOK},
		Causes:  []*Cause{TooMany, Unsupported, Unavailable, Draining},
	}}}
}

const (
	// heartbeatEvery is how often a stream says that it is alive, and looks
	// whether hints still arrive.
	heartbeatEvery = 5 * time.Second
	addressEvery   = 500 * time.Millisecond
	// maxNames bounds the locks that one stream tells of.
	maxNames = 100
)

// events streams server-sent events until the client goes. One that comes back
// soon is told what it has missed.
func (s *Server) events(w *answer, r *http.Request) error {
	names := r.URL.Query()["name"]
	if len(names) > maxNames {
		return api.NewProblem(Invalid, "%d names, more than %d", len(names), maxNames)
	}
	for _, name := range names {
		if err := check.Text("name", name, 1, check.MaxName); err != nil {
			return err
		}
		if !w.x.may(auth.Read, name) {
			return forbidden(auth.Read)
		}
	}
	of := w.x.Client() + "\n" + strings.Join(names, "\n")
	f, next, taken := s.streams.resume(header(r.Header, "Last-Event-Id"), of)
	if f == nil {
		var err error
		if f, err = s.newStream(&w.x, of, names); err != nil {
			return err
		}
		taken = s.streams.add(f)
	}
	l := listening{w: w, control: http.NewResponseController(w), f: f, next: next}
	l.serve(r.Context(), s.serving.Done(), taken)
	s.streams.leave(f, taken, s.isDraining())
	return nil
}

// listening is a connection by which a client hears a stream.
type listening struct {
	w       http.ResponseWriter
	control *http.ResponseController
	f       *stream
	next    uint64 // the number of the event that is sent next
	ready   bool   // the client was told an address
}

// serve sends until the client has gone, is too slow, has come back by another
// connection, or the service ends.
func (l *listening) serve(ctx context.Context, draining, taken <-chan struct{}) {
	h := l.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy holds the events back
	l.w.WriteHeader(http.StatusOK)
	l.ready = l.next > 0
	address := l.f.address()
	if l.send() != nil || l.write([]byte(":\n\n")) != nil { // which sends the header if there is no event yet
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
			err = l.send()
		case <-look.C:
			if now := l.f.address(); now != address {
				address = now
				l.f.push(event{wire.EventReady, nil})
			}
		case <-beat.C:
			err = l.write([]byte(":\n\n"))
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

// send writes the events that wait. Ready carries the address as it is now, and is
// left out as long as there is none.
func (l *listening) send() error {
	events, first := l.f.pull(l.next)
	if first > l.next && l.next > 0 { // some are not kept any more: the client asks again about everything
		events = append([]event{{wire.EventReady, nil}}, events...)
		first--
	}
	var b bytes.Buffer
	for i, e := range events {
		l.next = first + uint64(i) + 1
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
