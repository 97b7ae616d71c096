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
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// asking is an acquire under way. Thousands of them wait at a time, each on the
// stack of its request: what they know is here and not there, so that the stack
// of one that waits is small enough to be halved.
type asking struct {
	s      *Server
	x      *Exchange
	v      visit
	req    driver.Request
	end    time.Time     // of the wait
	ticket time.Duration // how long the place is kept after the answer
	keeps  bool          // that was asked for, so that it is kept for a client that has gone, too
	waited bool
	asked  bool // the store

	// got is what the store said last, to what was sent to it at sent.
	got  driver.Reply
	sent time.Time
	// repeated tells that the store left a request unanswered.
	repeated bool
}

// errVanished ends the wait of a client that has gone: nobody is answered.
var errVanished = errors.New("the client has gone")

// acquire takes a lock, or a place in its queue.
func (s *Server) acquire(w *answer, r *http.Request) error {
	a, err := s.newAsking(&w.x, r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err = s.desk.visit(ctx, &a.v, &a.req); err != nil {
		return errVanished
	}
	defer a.v.end()
	err = a.take(ctx)
	if errors.Is(err, errVanished) || vanished(ctx) {
		a.abandon()
		return errVanished
	}
	if err == nil {
		err = a.answer(w, r)
	}
	return err
}

// answer tells the client what the store said.
func (a *asking) answer(w *answer, r *http.Request) error {
	a.s.lookouts.nudge(a.req.Key)
	l := leaseOf(a.x, a.req.Key, a.req.ID, a.got)
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

// newAsking reads the request.
func (s *Server) newAsking(x *Exchange, r *http.Request) (*asking, error) {
	name, err := lockName(x)
	if err != nil {
		return nil, err
	}
	b, err := decode[wire.Acquire](r)
	if err != nil {
		return nil, err
	}
	if b.LeaseID == "" {
		b.LeaseID = rand.Text()
	}
	if !b.Reentrant { // where the owner is an identity it has to be given
		b.Owner = cmp.Or(b.Owner, x.Client())
	}
	x.LeaseID = b.LeaseID
	a := &asking{s: s, x: x}
	a.req, err = s.request(name, &b)
	if err := first(err, checkID(b.LeaseID)); err != nil {
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
	a.keeps = b.Ticket != nil && a.ticket > 0
	return a, nil
}

// waits reports whether the answer may be held back.
func (a *asking) waits() bool {
	return a.req.HintAddress == "" && a.end.After(a.x.Started) && time.Now().Before(a.end)
}

// take asks the store, and waits if it may.
func (a *asking) take(ctx context.Context) error {
	if !a.waits() {
		return a.askOnce(ctx)
	}
	a.s.places.end(leaseKey{a.req.Key, a.req.ID}) // it counts as this request from now on
	leave, err := a.s.admit(a.x)
	if err != nil {
		return err
	}
	defer leave()
	a.waited = true
	for poll := false; ; poll = true {
		if again, err := a.wait(ctx, poll); !again {
			return err
		}
	}
}

// askOnce asks for the lock, and for a place in the queue if that was asked for,
// which counts as a request that waits.
func (a *asking) askOnce(ctx context.Context) error {
	of := leaseKey{a.req.Key, a.req.ID}
	if a.req.TicketTTL = a.ticket; a.ticket > 0 {
		if err := a.s.places.enter(a.x.Client(), of, a.ticket); err != nil {
			return err
		}
	}
	err := a.ask(ctx)
	if err != nil || a.got.State != driver.Queued {
		a.s.places.end(of)
	}
	return err
}

// ask asks the store until it answers, for a client that is there: a request that
// was read late may be of one that has long asked by another connection. It does
// not end with the client: what has been begun is carried through, so that it can
// be undone.
func (a *asking) ask(client context.Context) error {
	ctx := a.s.timeouts.begin(client, time.Now())
	for attempt := 0; ; attempt++ {
		if vanished(client) {
			return errVanished
		}
		a.asked, a.sent = true, clock.Now()
		var err error
		a.got, err = a.s.verbs.Acquire(ctx, a.req)
		if err == nil && a.got.State == driver.Granted && timing.TooLate(clock.Now(), a.sent, a.req.TTL, timing.Drift) {
			err = timing.ErrLate
		}
		if err == nil {
			a.s.desk.lone.hear(a.req.Key, &a.got)
			return nil
		}
		if timing.Definite(err) {
			return a.certainly(err)
		}
		a.repeated = true
		end, _ := ctx.Deadline()
		time.Sleep(min(timing.BackOff(attempt), time.Until(end)))
		if !time.Now().Before(end) {
			return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
	}
}

// certainly is an error by which the store says that nothing has happened. That
// is so if it was asked once; else it says nothing of the request before.
func (a *asking) certainly(err error) error {
	if a.repeated {
		return fmt.Errorf("the store did not answer at first, and then: %v", err) //nolint:errorlint // what it matches is not true
	}
	return err
}

// wait asks the store with a ticket and keeps that until the lock is granted,
// the wait is over, or the client has gone. A ticket that the store has dropped
// is asked for again, by polling: its hint may not have come.
func (a *asking) wait(ctx context.Context, poll bool) (again bool, err error) {
	w := a.queueUp(ctx, poll)
	defer w.d.part(w)
	for err = a.ask(ctx); err == nil && a.got.State == driver.Queued; {
		w.keep(a.got.RetryAfter)
		switch a.sleep(ctx, w) {
		case called:
			err = a.turn(ctx, w)
		case settled:
			return a.settle(w)
		case left:
			err = errVanished
		case over:
			return false, a.giveUp(ctx, w)
		}
		if err != nil {
			w.stop()
		}
	}
	if err == nil && a.got.State == driver.Busy {
		return a.askLater(ctx)
	}
	return false, err
}

// queueUp prepares for a place in the queue.
func (a *asking) queueUp(ctx context.Context, poll bool) *waiter {
	a.req.HintAddress = ""
	if !poll {
		a.req.HintAddress = a.s.desk.address()
	}
	a.req.TicketTTL = timing.TicketLife(a.req.HintAddress)
	w := newWaiter(a.s.desk, &a.req, poll, func() bool { return vanished(ctx) })
	w.d.join(w)
	return w
}

// settle takes over what came of the wait. A place that was lost may be asked for
// again.
func (a *asking) settle(w *waiter) (again bool, err error) {
	err = w.outcome(&a.got)
	return err == nil && a.got.State == driver.Gone && !a.got.Broken, err
}

// turn asks when it seems to be the client's turn. If the store does not answer
// the place is kept, and it is asked again.
func (a *asking) turn(ctx context.Context, w *waiter) error {
	a.req.HintAddress = w.address()
	err := a.ask(ctx)
	if err == nil || errors.Is(err, errVanished) || timing.Final(err) {
		return err
	}
	a.got = driver.Reply{State: driver.Queued, RetryAfter: timing.PollEvery}
	return nil
}

// Why a sleep ended.
const (
	called  = iota // it may be the client's turn
	settled        // the store has decided
	left           // the client has gone
	over           // its time is up, or the service is about to end
)

// sleep waits for something to do.
func (a *asking) sleep(ctx context.Context, w *waiter) int {
	timer := time.NewTimer(time.Until(a.end))
	defer timer.Stop()
	select {
	case <-w.turn:
		return called
	case <-w.done:
		return settled
	case <-ctx.Done():
		return left
	case <-timer.C:
	case <-a.s.serving.Done():
	}
	return over
}

// giveUp ends a wait. The place is kept for as long as was asked for, and as long
// as another request waits for the same lease. Somebody who has been granted the
// lock at the last moment is told so.
func (a *asking) giveUp(ctx context.Context, w *waiter) (err error) {
	switch {
	case a.ticket == 0:
		w.stop()
		if done, last := a.v.retire(); last {
			defer done()
			return a.leave(ctx)
		}
	case a.v.alone():
		w.finish(a.ticket)
		<-w.done // bounded by the store's timeout
		_, err = a.settle(w)
	default:
		w.stop()
	}
	switch {
	case err == nil && a.got.State == driver.Granted:
		return a.turn(ctx, w)
	case err == nil && a.got.State == driver.Queued && a.ticket == 0:
		a.got.State = driver.Busy
	}
	return err
}

// leave gives the place in the queue up, and a lock that was handed over at
// the last moment.
func (a *asking) leave(ctx context.Context) (err error) {
	a.got, err = a.s.verbs.Release(a.s.timeouts.begin(ctx, time.Now()), driver.Ref{Key: a.req.Key, ID: a.req.ID, Visit: a.req.Visit})
	if err == nil && a.s.isDraining() {
		err = newProblem(Draining, "the service is about to end").after(retryLater)
	}
	a.got.State = driver.Busy
	return err
}

// abandon gives up what a client that has gone has got, or keeps its place in the
// queue for as long as it said.
func (a *asking) abandon() {
	if !a.asked {
		return
	}
	kept := time.Duration(0)
	if a.keeps && a.waited && a.got.State == driver.Queued {
		kept = a.ticket
		a.count()
	}
	a.v.abandon(kept)
}

// count has a place that outlasts its wait count as a request that waits, in the
// room that this one has left.
func (a *asking) count() {
	_ = a.s.places.enter(a.x.Client(), leaseKey{a.req.Key, a.req.ID}, a.ticket) // another took the room: this one is there already
}

// askLater pauses before a store that keeps no queue is asked again.
func (a *asking) askLater(ctx context.Context) (again bool, err error) {
	pause := timing.Spread(timing.PollEvery)
	if a.got.RetryAfter > 0 {
		pause = min(pause, a.got.RetryAfter+time.Millisecond)
	}
	if time.Until(a.end) < pause {
		return false, nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, errVanished
	case <-a.s.serving.Done():
		return false, nil
	}
}

// grant tells the client that it has the lock.
func (a *asking) grant(w *answer, r *http.Request, l *wire.Lease) {
	status := http.StatusCreated
	if a.got.Replayed {
		status, l.Again = http.StatusOK, true
	}
	l.TTL = wire.MillisOf(a.req.TTL)
	l.Remaining = wire.Floor(max(a.req.TTL-clock.Now().Sub(a.sent), 0))
	a.v.tell()
	if a.waited {
		unread, read := a.v.doubt()
		onReset(r.Context(), unread, read)
	}
	reply(w, status, l)
}

// queued tells the client its place, and when to ask again so that it is kept.
// Who has waited asks again at once.
func (a *asking) queued(w *answer, l *wire.Lease) {
	after := time.Duration(0)
	if !a.waited || a.s.isDraining() {
		after = min(retryLater, a.ticket/3)
	}
	if a.waited {
		a.count()
	}
	l.Ticket, l.RetryAfter = wire.Floor(a.ticket), wire.Floor(after)
	w.Header().Set("Retry-After", seconds(after))
	a.v.tell()
	reply(w, http.StatusAccepted, l)
}
