package session

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// release releases ref until it is answered or limit has passed. parent is not
// the caller's context, which usually has ended, but may have its values.
// repeated tells that a try before the last was not answered, so that it may
// have had its effect.
func (s *Session) release(parent context.Context, ref driver.Ref, limit time.Duration) (reply driver.Reply, repeated bool, err error) {
	left := max(limit, 0)
	end := s.Now().Add(left)
	for attempt := 1; ; attempt++ {
		reply, err = s.releaseOnce(parent, ref, timing.ReleaseTry(left))
		if err == nil || timing.Final(err) {
			return reply, repeated, err
		}
		repeated = repeated || !timing.Definite(err)
		pause := timing.BackOff(attempt)
		if s.Now().Add(pause).After(end) {
			return reply, repeated, err
		}
		time.Sleep(pause)
		left = max(end.Sub(s.Now()), 0)
	}
}

func (s *Session) releaseOnce(ctx context.Context, ref driver.Ref, limit time.Duration) (driver.Reply, error) {
	ctx, cancel := s.bound(ctx, limit)
	defer cancel()
	return s.drv.Release(ctx, ref)
}

// Undo undoes in the background what a request may have left behind. Whoever asked
// has gone.
func (s *Session) Undo(ctx context.Context, t *Terms, req *driver.Request, unanswered bool) {
	a := Abandoned{Ref: driver.Ref{Key: req.Key, ID: req.ID, Visit: req.Visit}, Life: max(req.TTL, req.TicketTTL)}
	if unanswered {
		a.Ref.RejectIDFor = timing.ForbidFor
	}
	s.GiveBack(context.WithoutCancel(ctx), t, &a)
}

// Abandoned is what nobody waits for any more.
type Abandoned struct {
	Ref  driver.Ref
	Life time.Duration // of the lease or ticket: it is over by itself then
	// Keep is how long a place in the queue is kept all the same; 0 is not at all.
	Keep time.Duration
	// Tried is called after the first try to give it back, if it is not nil.
	Tried func()
	// Over is called when it is tried no more, if it is not nil.
	Over func()
}

// GiveBack undoes in the background what was abandoned, unless the session has ended.
func (s *Session) GiveBack(ctx context.Context, t *Terms, a *Abandoned) {
	if !s.enterUnlessEnded() {
		return
	}
	until := s.Now().Add(a.Life)
	go func() {
		defer s.Leave()
		if a.Over != nil {
			defer a.Over()
		}
		if err := s.undo(ctx, t, a, until); err != nil {
			t.Log.Warn("leasehold: abandoned request not undone", "key", a.Ref.Key, "lease", a.Ref.ID, "error", err)
		}
	}()
}

// undo gives back until the store has answered, or until what may be there is
// over by itself: a store that was away comes back with what it was last asked
// for. There may be many of these, so they ask less and less often. A
// session that is closed waits for about a release timeout at most, or until ctx ends.
func (s *Session) undo(ctx context.Context, t *Terms, a *Abandoned, until time.Time) error {
	soon := s.Now().Add(t.ReleaseTimeout)
	try := timing.ReleaseTry(t.ReleaseTimeout)
	for attempt := 1; ; attempt++ {
		err := s.undoOnce(ctx, a, try, until)
		if attempt == 1 && a.Tried != nil {
			a.Tried()
		}
		now := s.Now()
		if err == nil || timing.Final(err) || now.After(until) || s.IsClosing() && now.After(soon) {
			return err
		}
		slept := s.sleep(ctx, timing.UndoIn(attempt))
		if ctx.Err() != nil {
			return err
		}
		if !slept {
			time.Sleep(timing.BackOff(attempt)) // the session is being closed
		}
	}
}

// whileOpen returns a context that ends, too, when the session is closed.
func (s *Session) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// undoOnce gives back in its turn: if thousands give up at one moment the store is
// not to be flooded by what they leave either. A session that is closed does not
// stand in line.
func (s *Session) undoOnce(ctx context.Context, a *Abandoned, limit time.Duration, until time.Time) error {
	p, ok := s.undoing.pass()
	if !ok {
		p, ok = s.undoing.wait(ctx, s.Closing(), func() time.Duration { return until.Sub(s.Now()) })
	}
	if !ok && !s.IsClosing() {
		return errCrowded
	}
	err := s.giveBackOnce(ctx, a, limit)
	if ok {
		s.undoing.leave(p, err == nil)
	}
	return err
}

// giveBackOnce releases, or keeps a place that is to be kept.
func (s *Session) giveBackOnce(ctx context.Context, a *Abandoned, limit time.Duration) error {
	if a.Keep > 0 {
		ref := driver.Ref{Key: a.Ref.Key, ID: a.Ref.ID, TTL: a.Ref.TTL, TicketTTL: a.Keep, HintAddress: a.Ref.HintAddress}
		kept, err := s.renewOnce(ctx, ref, limit)
		if err != nil || kept.State == driver.Queued {
			return err
		}
	}
	_, err := s.releaseOnce(ctx, a.Ref, limit)
	return err
}

// goOn releases ref in the background, again and again until the store has
// answered, until is over, or the session is closed: whoever released it first has
// waited for the release timeout.
func (s *Session) goOn(ctx context.Context, t *Terms, ref driver.Ref, until time.Time) {
	s.Background(func() {
		ctx, cancel := s.whileOpen(ctx)
		defer cancel()
		if s.sleep(ctx, timing.Spread(timing.PollEvery)) {
			_ = s.undo(ctx, t, &Abandoned{Ref: ref}, until)
		}
	})
}
