package session

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// release releases ref until the store answers or limit has passed. parent is used for
// its values only; the caller's own context has usually ended. repeated reports whether an
// earlier try was not answered, and may have released ref.
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

// Undo undoes in the background the effects of an abandoned request.
func (s *Session) Undo(ctx context.Context, t *Terms, req *driver.Request, unanswered bool) {
	a := Abandoned{Ref: driver.Ref{Key: req.Key, ID: req.ID, Visit: req.Visit}, Life: max(req.TTL, req.TicketTTL)}
	if unanswered {
		a.Ref.RejectIDFor = timing.ForbidFor
	}
	s.GiveBack(context.WithoutCancel(ctx), t, &a)
}

// Abandoned describes a request or lease whose caller has given up.
type Abandoned struct {
	Ref  driver.Ref
	Life time.Duration // of the lease or ticket, after which it expires
	// Keep is how long to keep the place in the queue nevertheless; 0 is not at all.
	Keep time.Duration
	// Tried, if not nil, is called after the first try.
	Tried func()
	// Over, if not nil, is called after the last try.
	Over func()
}

// GiveBack undoes a in the background, unless the session has ended.
func (s *Session) GiveBack(ctx context.Context, t *Terms, a *Abandoned) {
	if !s.enterUnlessEnded() {
		return
	}
	s.mu.Lock()
	s.undoFor = max(s.undoFor, t.ReleaseTimeout)
	s.mu.Unlock()
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

// undo gives a back until the store answers, or until a would have expired: an
// unavailable store may return with the effects of its last requests. There may be many
// of these, so the pauses grow. After Close, undo continues for about a release timeout
// at most, or until ctx ends.
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
			time.Sleep(timing.BackOff(attempt)) // the session is closing
		}
	}
}

// whileOpen returns a context that also ends when the session is closed.
func (s *Session) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// undoOnce makes one try in its turn, so that thousands of callers that give up at one
// moment do not flood the store. A closing session does not wait for its turn.
func (s *Session) undoOnce(ctx context.Context, a *Abandoned, limit time.Duration, until time.Time) error {
	span, ok := s.undoing.tryStart()
	if !ok {
		span, ok = s.undoing.wait(ctx, s.Closing(), func() time.Duration { return until.Sub(s.Now()) })
	}
	if !ok && !s.IsClosing() {
		return errCrowded
	}
	err := s.giveBackOnce(ctx, a, limit)
	if ok {
		s.undoing.end(span, err == nil)
	}
	return err
}

// giveBackOnce releases a, or keeps its place if Keep is set.
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

// goOn releases ref in the background until the store answers, or until limit or the end of the
// session. Close need not wait longer: the first release has already waited for
// the release timeout.
func (s *Session) goOn(ctx context.Context, t *Terms, ref driver.Ref, limit time.Time) {
	s.Background(func() {
		ctx, cancel := s.whileOpen(ctx)
		defer cancel()
		if s.sleep(ctx, timing.Spread(timing.PollEvery)) {
			_ = s.undo(ctx, t, &Abandoned{Ref: ref}, limit)
		}
	})
}
