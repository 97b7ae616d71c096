package server

import (
	"context"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// verb is what a request wants of a lease.
type verb uint8

const (
	acquiring verb = iota
	renewing
	releasing
	breaking
)

// event is the store's answer to one request about a lease, or about a place in the queue: the
// lease was granted, renewed, released, lost or broken, or waits.
type event struct {
	verb   verb
	x      *Exchange // of an acquire or a break
	ref    [1]driver.Ref
	req    *driver.Request // of an acquire
	reason string          // of a break
	got    driver.Reply
	err    error
	about  *followed // nil for an acquire, and without an audit log
}

func (e *event) answer(_ int, got driver.Reply, err error) { e.got, e.err = got, err }

// ask sends a request about a lease to the store by call, which sets the answer in e, and
// publishes that. It returns the error of the answer.
func (s *Server) ask(r *http.Request, e *event, call func(context.Context)) error {
	now := time.Now()
	s.trail.ask(e, now)
	defer s.trail.answered(e)
	call(s.timeouts.begin(r.Context(), now)) // a client that disconnects has asked nevertheless
	s.publish(e)
	return e.err
}

// publish passes an event to the parts of the service that follow leases. They are called one
// after the other, and do not wait for clients or the store.
func (s *Server) publish(e *event) {
	if e.verb == renewing {
		s.metrics.countRenewal(e)
	}
	if e.err != nil {
		return
	}
	ref, state := &e.ref[0], e.got.State
	if e.verb != renewing {
		s.watchers.nudge(ref.Key)
	}
	if e.verb != acquiring {
		s.places.follow(ref, state)
	}
	if e.verb == breaking && state != driver.Gone { // a person decided it
		s.cfg.log.Warn("broken by force", "name", ref.Key, "lease", ref.ID, "client", e.x.Client(), "reason", e.reason, "trace", e.x.Trace)
	}
	s.trail.note(e, time.Now())
}
