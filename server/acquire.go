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
	"github.com/leasehold-go/leasehold/internal/ticket"
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
	waited bool

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
	if err = s.desk.visit(ctx, &a.v, a.req.Key, a.req.ID, a.waits()); err != nil {
		return errVanished
	}
	defer a.v.end()
	err = a.take(ctx)
	if gone(ctx) {
		a.v.undo()
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
		replyLease(w, http.StatusOK, &l)
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
	b, err := decode(r, wire.ParseAcquire)
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
	if a.req.Since.IsZero() {
		a.req.Since = x.Started
	}
	absent := time.Duration(0)
	if b.Wait > 0 {
		absent = defaultTicket
	}
	a.end, a.ticket = x.Started.Add(b.Wait.Duration()), millisOr(b.Ticket, absent).Duration()
	return a, nil
}

// waits reports whether the answer may be held back.
func (a *asking) waits() bool {
	return a.req.Notify == "" && a.end.After(a.x.Started) && time.Now().Before(a.end)
}

// take asks the store, and waits if it may.
func (a *asking) take(ctx context.Context) error {
	if a.v.passed == nil {
		a.req.Wait = a.ticket
		return a.ask(ctx)
	}
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

// ask asks the store until it answers. It does not end with the client: what
// has been begun is carried through, so that it can be undone.
func (a *asking) ask(ctx context.Context) error {
	a.sent = time.Now()
	ctx = a.s.timeouts.begin(ctx, a.sent)
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		var err error
		a.got, err = a.s.verbs.Acquire(ctx, a.req)
		if err == nil && a.got.State == driver.Granted && time.Since(a.sent) >= a.req.TTL {
			err = errors.New("the answer took longer than the lease lasts")
		}
		if err == nil {
			a.s.desk.lone.hear(a.req.Key, &a.got)
			return nil
		}
		if ticket.Final(err) || errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		a.repeated = true
		end, _ := ctx.Deadline()
		time.Sleep(min(pause, time.Until(end)))
		if !time.Now().Before(end) {
			return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		a.sent = time.Now()
	}
}

// wait asks the store with a ticket and keeps that until the lock is granted,
// the wait is over, or the client has gone. A ticket that the store has dropped
// is asked for again, by polling: its hint may not have come.
func (a *asking) wait(ctx context.Context, poll bool) (again bool, err error) {
	a.req.Notify = ""
	if !poll {
		a.req.Notify = a.s.desk.address()
	}
	a.req.Wait, a.v.address = ticket.Life(a.req.Notify), a.req.Notify
	w := newWaiter(a.s.desk, &a.req, poll)
	w.d.join(w)
	defer w.d.part(w)
	switch err := a.ask(ctx); {
	case err != nil:
		return false, err
	case a.got.State == driver.Busy:
		return a.askLater(ctx)
	case a.got.State != driver.Queued:
		return false, nil
	}
	w.keep(a.got.Next)
	switch a.sleep(ctx, w.done) {
	case settled:
		err = a.settle(w)
		return err == nil && a.got.State == driver.Gone && !a.got.Broken, err
	case vanished:
		a.v.address = w.stop()
		return false, errVanished
	case passed:
		return false, nil // the place is that of another request now
	default:
		return false, a.giveUp(ctx, w)
	}
}

// Why a wait ended.
const (
	settled  = iota // the store has decided
	vanished        // the client has gone
	passed          // it has asked again by another way
	over            // its time is up, or the service is about to end
)

// sleep waits for the end of a wait.
func (a *asking) sleep(ctx context.Context, done <-chan struct{}) int {
	timer := time.NewTimer(time.Until(a.end))
	defer timer.Stop()
	select {
	case <-done:
		return settled
	case <-ctx.Done():
		return vanished
	case <-a.v.passed:
		return passed
	case <-timer.C:
	case <-a.s.serving.Done():
	}
	return over
}

// settle takes over what came of the wait.
func (a *asking) settle(w *waiter) (err error) {
	a.got, a.sent, err = w.outcome()
	a.v.address = w.addressed()
	return err
}

// giveUp ends a wait. The place is kept for as long as was asked for. Somebody
// who has been granted the lock at the last moment is told so.
func (a *asking) giveUp(ctx context.Context, w *waiter) error {
	if a.ticket == 0 && w.addressed() != "" {
		return a.leave(ctx, w.stop())
	}
	w.finish(max(a.ticket, time.Millisecond))
	<-w.done // bounded by the store's timeout
	err := a.settle(w)
	if err == nil && a.got.State == driver.Queued && a.ticket == 0 {
		a.got.State = driver.Busy
	}
	return err
}

// leave gives the place in the queue up, and a lock that was handed over at
// the last moment.
func (a *asking) leave(ctx context.Context, address string) (err error) {
	a.got, err = a.s.verbs.Release(a.s.timeouts.begin(ctx, time.Now()), driver.Ref{Key: a.req.Key, ID: a.req.ID, Notify: address})
	if err == nil && a.s.isDraining() {
		err = newProblem(Draining, "the service is about to end").after(retryLater)
	}
	a.got.State = driver.Busy
	return err
}

// askLater pauses before a store that keeps no queue is asked again.
func (a *asking) askLater(ctx context.Context) (again bool, err error) {
	pause := ticket.Spread(ticket.PollEvery)
	if a.got.Next > 0 {
		pause = min(pause, a.got.Next+time.Millisecond)
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
	if a.got.Again {
		status, l.Again = http.StatusOK, true
	}
	l.TTL = wire.MillisOf(a.req.TTL)
	l.Remaining = wire.Floor(max(a.req.TTL-time.Since(a.sent), 0))
	if a.waited {
		undo, keep := a.v.undoLater()
		onReset(r.Context(), undo, keep)
	}
	replyLease(w, status, l)
}

// queued tells the client its place, and when to ask again so that it is kept.
// Who has waited asks again at once.
func (a *asking) queued(w *answer, l *wire.Lease) {
	after := time.Duration(0)
	if !a.waited || a.s.isDraining() {
		after = min(retryLater, a.ticket/3)
	}
	l.Ticket, l.RetryAfter = wire.Floor(a.ticket), wire.Floor(after)
	w.Header().Set("Retry-After", seconds(after))
	replyLease(w, http.StatusAccepted, l)
}
