package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// acquireCall is the state of an acquire. It is on the heap because thousands of acquires wait
// at a time, and the stack of each is halved if it is small enough.
type acquireCall struct {
	s      *Server
	x      *Exchange
	r      *http.Request
	client client
	until  client        // the same, until the end of the wait
	terms  session.Terms // of its wait
	share  share
	req    driver.Request
	end    time.Time     // of the wait
	stop   func()        // ends until
	ticket time.Duration // how long the place is kept after the answer
	keeps  bool          // the place is kept for a client that has gone, too, since ticketMs was given
	notify string        // the address at which the client itself receives hints
	waited bool
	asked  bool // the store may have done something
	oneWay bool // the client may have closed its side, and reads the answer

	got      session.Answer // the last answer of the store
	repeated bool           // the store left a request unanswered
}

// errVanished ends a request whose client has gone. No answer is sent.
var errVanished = errors.New("the client has gone")

// acquire takes a lock, or a place in its queue.
func (s *Server) acquire(w *answer, r *http.Request) error {
	a, err := s.newAcquireCall(&w.x, r)
	if err != nil {
		return err
	}
	if err := s.session.Begin(); err != nil {
		return errDraining
	}
	defer s.session.Leave()
	if err := s.inflight.begin(a.client.Context, &a.share, &a.req); err != nil {
		return errVanished
	}
	defer a.share.end()
	err = a.take()
	if a.gone(r) {
		a.abandon()
		return errVanished
	}
	if a.waited {
		if err := s.still(a.x, r); err != nil {
			a.keeps = false
			a.abandon()
			return err
		}
	}
	if err == nil {
		return a.answer(w, r)
	}
	if a.asked {
		a.doubt(r)
	}
	return err
}

// gone reports whether the client has gone, so that no answer would be read.
func (a *acquireCall) gone(r *http.Request) bool {
	if a.oneWay && r.Context().Err() != nil {
		return !connOf(r.Context()).closing()
	}
	return a.client.Err() != nil
}

// answer sends the store's answer to the client.
func (a *acquireCall) answer(w *answer, r *http.Request) error {
	a.s.publish(&event{
		verb: acquiring, x: a.x, req: &a.req, got: a.got.Reply,
		ref: [1]driver.Ref{{Key: a.req.Key, ID: a.req.ID, TTL: a.req.TTL, TicketTTL: a.req.TicketTTL}},
	})
	l := leaseOf(a.x, a.req.Key, a.req.ID, a.got.Reply)
	l.Repeated = a.repeated
	switch a.got.State {
	case driver.Granted:
		a.grant(w, r, &l)
	case driver.Queued:
		a.queued(w, &l)
	case driver.Resized:
		reply(w, http.StatusOK, &l)
	case driver.Busy:
		return held(&l)
	default:
		return lost(&l)
	}
	return nil
}

// newAcquireCall reads the request.
func (s *Server) newAcquireCall(x *Exchange, r *http.Request) (*acquireCall, error) {
	b, err := decode[wire.Acquire](r)
	if err != nil {
		return nil, err
	}
	name, err := lockName(x, b.Key)
	if err != nil {
		return nil, err
	}
	if b.LeaseID == "" {
		b.LeaseID = rand.Text()
	}
	if !b.Reentrant { // the owner of a reentrant lease is an identity, and must be given
		b.Owner = cmp.Or(b.Owner, x.Client())
	}
	x.LeaseID = b.LeaseID
	a := &acquireCall{s: s, x: x, r: r, client: clientOf(r.Context())}
	a.req, err = s.request(name, &b)
	if err := cmp.Or(err, check.ID(b.LeaseID)); err != nil {
		return nil, err
	}
	if err := driver.Supports(s.store, a.req); err != nil {
		return nil, err
	}
	if a.req.Since.IsZero() {
		a.req.Since = x.Started
	}
	absent := time.Duration(0)
	if b.Wait > 0 {
		absent = defaultTicket
	}
	a.end, a.ticket = x.Started.Add(b.Wait.Duration()), millisOr(b.Ticket, absent).Duration()
	a.keeps, a.notify = b.Ticket != nil && a.ticket > 0, a.req.HintAddress
	if a.oneWay = oneWay(r) && a.ticket == 0 && !a.waits(); a.oneWay {
		a.client = client{Context: answering(r)}
	}
	return a, nil
}

// waits reports whether the answer may be held back.
func (a *acquireCall) waits() bool {
	return a.req.HintAddress == "" && a.end.After(a.x.Started) && time.Now().Before(a.end)
}

// take asks the store, and waits if it may.
func (a *acquireCall) take() error {
	if !a.waits() {
		return a.askOnce()
	}
	a.s.places.end(leaseKey{a.req.Key, a.req.ID}) // it counts as this request from now on
	leave, err := a.s.admit(a.x)
	if err != nil {
		return err
	}
	defer leave()
	a.waited = true
	return a.wait()
}

// askOnce asks the store once, and for a place in the queue if the client wants one. The place
// counts as a request that waits.
func (a *acquireCall) askOnce() error {
	of := leaseKey{a.req.Key, a.req.ID}
	if a.req.TicketTTL = a.ticket; a.ticket > 0 {
		if err := a.s.places.enter(a.x.Client(), of, a.ticket); err != nil {
			return err
		}
	}
	err := a.heard(a.s.session.Ask(&a.client, &a.s.terms, &a.req))
	if err != nil || a.got.State != driver.Queued {
		a.s.places.end(of)
	}
	return err
}

// heard stores the answer of the store.
func (a *acquireCall) heard(got session.Answer, err error) error {
	a.asked = a.asked || got.Unanswered || err == nil
	a.repeated = a.repeated || got.Unanswered
	if err == nil {
		a.got = got
		a.s.contention.hear(a.req.Key, &a.got.Reply)
	}
	return err
}

// wait asks the store with a ticket and waits until the lock is granted, the wait is
// over, or the client has gone.
func (a *acquireCall) wait() error {
	a.terms = a.s.terms
	a.terms.MaxOutage = max(a.terms.MaxOutage, time.Until(a.end)) // an outage of the store does not end the wait
	w, err := a.s.session.NewWaiter(&a.terms, &a.req)
	if err != nil {
		return errDraining
	}
	defer w.Close()
	if err := a.heard(w.Queue(&a.client)); err != nil || a.got.State != driver.Queued && a.got.State != driver.Busy {
		return err
	}
	a.boundWait()
	defer a.stop()
	return a.served(w, w.Wait(&a.until, &a.got, nil))
}

// boundWait ends the wait when its time is up, the service drains, or the client has lost its
// right.
func (a *acquireCall) boundWait() {
	ctx, cancel := context.WithDeadline(a.client.Context, a.end)
	detach := context.AfterFunc(a.s.serving, cancel)
	unguard := a.s.guard(a.x, a.r, cancel)
	a.until = client{ctx, a.client.conn}
	a.stop = func() {
		unguard()
		detach()
		cancel()
	}
}

// served handles the result of a wait.
func (a *acquireCall) served(w *session.Waiter, err error) error {
	a.repeated = a.repeated || a.got.Unanswered
	a.s.contention.hear(a.req.Key, &a.got.Reply)
	if over := (*session.Unserved)(nil); errors.As(err, &over) {
		if err = a.giveUp(w, over.Failed); errors.Is(err, driver.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", session.ErrUnknown, timing.Uncertain(err)) // the place may remain, or the lock may be handed over
		}
	}
	return err
}

// giveUp ends a wait. The place is kept for as long as the client asked for, and while another
// request waits for the same lease. If the lock was granted at the last moment, the answer is
// that grant. failed is the store's error, or nil if its last request succeeded.
func (a *acquireCall) giveUp(w *session.Waiter, failed error) error {
	w.Stop()
	switch {
	case a.client.Err() != nil:
		return errVanished
	case a.got.State == driver.Busy: // the store keeps no queue
		return failed
	case a.ticket == 0:
		if done, last := a.share.retire(); last {
			defer done()
			return a.leave()
		}
		a.got.State = driver.Busy
		return failed
	}
	if !a.share.alone() {
		return failed
	}
	s := a.s
	if err := a.heard(s.session.Park(&a.client, &s.terms, &a.req, a.ticket)); err != nil || a.got.State != driver.Granted {
		return err
	}
	a.req.TicketTTL = a.ticket
	err := a.heard(s.session.Ask(&a.client, &s.terms, &a.req))
	if err != nil && !timing.Permanent(err) { // the place is kept
		a.got.Reply, err = driver.Reply{State: driver.Queued}, nil
	}
	return err
}

// leave gives up the place in the queue, or the lock if it was handed over at the last moment.
func (a *acquireCall) leave() (err error) {
	ref := driver.Ref{Key: a.req.Key, ID: a.req.ID, Visit: a.req.Visit}
	a.got.Reply, err = a.s.verbs.Release(a.s.timeouts.begin(a.client.Context, time.Now()), ref)
	if err == nil && a.s.isDraining() {
		err = errDraining
	}
	a.got.State = driver.Busy
	return err
}

// abandon gives up the lease or place of a client that has gone, unless the client asked to
// keep the place.
func (a *acquireCall) abandon() {
	if !a.asked {
		return
	}
	kept := time.Duration(0)
	switch {
	case !a.keeps:
	case a.notify != "" && a.got.State != driver.Granted, a.waited && a.got.State == driver.Queued:
		kept = a.ticket
		a.count()
	}
	a.share.abandon(kept, a.notify)
}

// count counts a place that outlasts its wait as a request that waits. It replaces this request
// in the quota.
func (a *acquireCall) count() {
	_ = a.s.places.enter(a.x.Client(), leaseKey{a.req.Key, a.req.ID}, a.ticket) // the quota may be used up again, but the place exists already
}

// grant answers that the client has the lock.
func (a *acquireCall) grant(w *answer, r *http.Request, l *wire.Lease) {
	status := http.StatusCreated
	if a.got.Replayed {
		status = http.StatusOK
	}
	l.TTL = wire.MillisOf(a.req.TTL)
	l.Remaining = wire.Floor(max(a.req.TTL-clock.Now().Sub(a.got.Sent()), 0))
	if !a.doubt(r) {
		a.share.tell()
	}
	reply(w, status, l)
}

// doubt reports whether the client may have gone: after a wait, or when it has closed its side. The
// lease is then given back if the connection is reset before the client has read the answer.
func (a *acquireCall) doubt(r *http.Request) bool {
	doubtful := a.waited || a.oneWay && connOf(r.Context()).closing()
	if doubtful {
		onReset(r.Context(), a.share.doubt())
	}
	return doubtful
}

// queued answers with the place in the queue, and when to ask again so that it is kept.
// A client that has waited asks again at once.
func (a *acquireCall) queued(w *answer, l *wire.Lease) {
	after := time.Duration(0)
	if !a.waited || a.s.isDraining() {
		after = min(retryLater, a.ticket/3)
	}
	if a.waited {
		a.count()
	}
	l.Ticket, l.RetryAfter = wire.Floor(a.ticket), wire.Floor(after)
	w.Header().Set("Retry-After", seconds(after))
	a.share.tell()
	reply(w, http.StatusAccepted, l)
}
