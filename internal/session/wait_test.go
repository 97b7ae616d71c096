package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// pending is a wait under way.
type pending struct {
	w  *Waiter
	mu sync.Mutex
	outcome
}

// outcome is the outcome of a wait.
type outcome struct {
	a    Answer
	err  error
	over time.Duration // when it ended, since the test began; 0 while it has not
	saw  []Progress
}

// now returns the present outcome of the wait.
func (p *pending) now() outcome {
	synctest.Wait()
	return locked(&p.mu, func() outcome { return p.outcome })
}

// pend starts a caller that asks for a lock, and waits for it.
func pend(ctx context.Context, t *testing.T, s *Session, d *script, terms *Terms, observe bool) *pending {
	t.Helper()
	w, err := s.NewWaiter(terms, terms.request())
	must(t, err)
	p := &pending{w: w}
	a, err := w.Queue(ctx)
	must(t, err)
	var f func(Progress)
	if observe {
		f = func(seen Progress) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.saw = append(p.saw, seen)
		}
	}
	go func() {
		err := w.Wait(ctx, &a, f)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.a, p.err, p.over = a, err, time.Since(d.start)
	}()
	synctest.Wait()
	return p
}

var queued = driver.Reply{State: driver.Queued, Position: 2}

func TestWait_EndsByWhatTheStoreSaysOfTheTicket(t *testing.T) {
	granted := driver.Reply{State: driver.Granted, Token: 7}
	for _, c := range []struct {
		name     string
		change   func(*Terms)
		acquired []any // the answers to an Acquire, after the first
		renewed  []any
		over     time.Duration // at the latest; a tenth earlier at the earliest
		asked    int           // by Acquire
		state    driver.State
		open     bool
		want     []error
		not      []error
		says     string
	}{
		{name: "granted", renewed: []any{queued, granted}, over: time.Second, asked: 1, state: driver.Granted},
		{name: "busy, then granted", renewed: []any{driver.Reply{State: driver.Busy}, granted}, over: time.Second, asked: 1, state: driver.Granted},
		{name: "lost, then granted", renewed: []any{errReset, granted}, over: time.Second, asked: 1, state: driver.Granted},
		{name: "gone, then granted", renewed: []any{driver.Reply{}}, acquired: []any{granted}, over: 500 * ms, asked: 2, state: driver.Granted},
		{name: "gone, then queued and granted", renewed: []any{driver.Reply{}, granted}, acquired: []any{queued}, over: time.Second, asked: 2, state: driver.Granted},
		{name: "gone, then lost and granted", renewed: []any{driver.Reply{}}, acquired: []any{errReset, granted}, over: 520 * ms, asked: 3, state: driver.Granted, open: true},
		{name: "gone, then refused for good", renewed: []any{driver.Reply{}}, acquired: []any{driver.ErrInvalid}, over: 500 * ms, asked: 2, state: driver.Queued, want: []error{driver.ErrInvalid}, not: []error{ErrUnknown}},
		{name: "gone, and gone again", renewed: []any{driver.Reply{}, granted}, acquired: []any{driver.Reply{}}, over: time.Second, asked: 2, state: driver.Granted},
		{
			name: "gone, and gone again, which is an answer", change: func(t *Terms) { t.Policy.GoneAnswers = true },
			renewed: []any{driver.Reply{}}, acquired: []any{driver.Reply{}}, over: 500 * ms, asked: 2, state: driver.Gone,
		},
		{name: "broken", renewed: []any{driver.Reply{Broken: true, Reason: "by hand"}}, over: 500 * ms, asked: 1, state: driver.Queued, want: []error{ErrBroken}, says: "by hand"},
		{
			name: "broken, which is an answer", change: func(t *Terms) { t.Policy.GoneAnswers = true },
			renewed: []any{driver.Reply{Broken: true}}, over: 500 * ms, asked: 1, state: driver.Gone,
		},
		{name: "refused for good", renewed: []any{driver.ErrInvalid}, over: 500 * ms, asked: 1, state: driver.Queued, want: []error{driver.ErrInvalid}, not: []error{ErrUnknown}},
		{
			name: "refused for an outage", change: func(t *Terms) { t.MaxOutage = 600 * ms }, renewed: []any{driver.ErrUnavailable},
			over: 1100 * ms, asked: 1, state: driver.Queued, want: []error{ErrUnknown}, not: []error{driver.ErrUnavailable}, says: "asked for 600ms",
		},
		{
			name: "lost, without patience", change: func(t *Terms) { t.MaxOutage = 0 }, renewed: []any{errReset},
			over: 500 * ms, asked: 1, state: driver.Queued, want: []error{ErrUnknown, errReset},
		},
		{
			// The ticket may be gone because it was handed the lock.
			name: "gone, then refused for an outage", change: func(t *Terms) { t.MaxOutage = 600 * ms }, renewed: []any{driver.Reply{}},
			acquired: []any{driver.ErrUnavailable}, over: 1100 * ms, asked: 7, state: driver.Queued,
			want: []error{ErrUnknown}, not: []error{driver.ErrUnavailable},
		},
		{
			name: "granted to one that asks first", change: func(t *Terms) { t.Policy.AskFirst = true },
			acquired: []any{queued, granted}, over: time.Second, asked: 3, state: driver.Granted,
		},
	} {
		acquire := answers(append([]any{queued}, c.acquired...)...)
		d := &script{acquire: acquire}
		if c.renewed != nil {
			d.renew = answersTo(c.renewed...)
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			if c.change != nil {
				c.change(terms)
			}
			p := pend(t.Context(), t, s, d, terms, false)
			time.Sleep(time.Minute)
			is := p.now()
			p.w.Close()
			if is.over > c.over || is.over < c.over*9/10-10*ms {
				t.Errorf("over after %v, want %v", is.over, c.over)
			}
			if is.a.State != c.state || is.a.Unanswered != c.open || (is.err == nil) != (c.want == nil) || is.err != nil && !strings.Contains(is.err.Error(), c.says) {
				t.Errorf("%+v, %v", is.a, is.err)
			}
			matches(t, is.err, c.want, c.not)
			if n := len(d.of("acquire")); n != c.asked || s.keeper.Len() != 0 || len(s.waiters) != 0 || len(s.lines.byKey) != 0 {
				t.Errorf("asked %d times by Acquire; %d renewals, %d waiters, %d lines are left", n, s.keeper.Len(), len(s.waiters), len(s.lines.byKey))
			}
			if is.a.State == driver.Granted {
				verb := "renew"
				if c.acquired != nil && (c.renewed == nil || len(c.renewed) == 1) {
					verb = "acquire"
				}
				all := d.times(verb)
				if at := is.a.Sent().Sub(d.start); at.Round(ms) != all[len(all)-1].Round(ms) {
					t.Errorf("it counts from %v, want %v", at, all[len(all)-1])
				}
			}
		})
	}
}

// TestWait_ThatEndsSaysWhatItSaw: why it ended, how long it lasted, the place, and the error if
// the store did not answer.
func TestWait_ThatEndsSaysWhatItSaw(t *testing.T) {
	stop := errors.New("stop")
	for _, c := range []struct {
		name  string
		renew any
		close bool
		want  []error
		not   []error
		says  string
	}{
		{name: "held", renew: queued, want: []error{context.Canceled, stop}, not: []error{ErrUnknown, ErrClosed}, says: "gave up after 3s: context canceled: stop"},
		{name: "by a close", renew: queued, close: true, want: []error{ErrClosed}, not: []error{ErrUnknown}, says: "gave up after 3s: client closed"},
		{name: "not answered", renew: errReset, want: []error{stop, ErrUnknown, errReset}, says: "gave up after 3s: context canceled: stop: outcome unknown: connection reset"},
		{name: "refused", renew: driver.ErrUnavailable, want: []error{stop, ErrUnknown}, not: []error{driver.ErrUnavailable}}, // the lock may be handed over
	} {
		d := &script{acquire: answers(queued), renew: answersTo(c.renew)}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			ctx, cancel := context.WithCancelCause(t.Context())
			p := pend(ctx, t, s, d, usual(), true)
			time.Sleep(3 * time.Second)
			if c.close {
				go func() { _, _ = s.End() }()
			} else {
				cancel(stop)
			}
			is := p.now()
			var u *Unserved
			if !errors.As(is.err, &u) || u.Position != 2 || u.Waited != 3*time.Second || is.over != 3*time.Second || !strings.HasPrefix(is.err.Error(), c.says) {
				t.Errorf("over after %v: %v", is.over, is.err)
			}
			matches(t, is.err, c.want, c.not)
			if seen := len(is.saw); seen < 1 || is.saw[0].Position != 2 || isReply(c.renew) != (seen > 4) {
				t.Errorf("it was observed %d times", seen)
			}
			p.w.Close()
			cancel(nil)
		})
	}
}

// TestWait_ASecondAnswerAfterTheEndOfTheContext counts only if the policy lets the call go on after
// the end of the context.
func TestWait_ASecondAnswerAfterTheEndOfTheContext(t *testing.T) {
	for _, c := range []struct {
		name    string
		through bool
		answer  any
		served  bool
	}{
		{"granted", false, driver.Reply{State: driver.Granted}, false},
		{"granted to one that carries through", true, driver.Reply{State: driver.Granted}, true},
		{"lost by one that carries through", true, driver.ErrInvalid, false},
	} {
		store := answers(c.answer)
		d := &script{renew: answersTo(driver.Reply{})}
		ctx, cancel := context.WithCancel(t.Context())
		d.acquire = func(_ context.Context, n int, _ *driver.Request) (driver.Reply, error) {
			if n == 1 {
				return queued, nil
			}
			cancel()
			return store(t.Context(), n, nil)
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			if c.through {
				terms.Policy.CallContext = context.WithoutCancel
			}
			p := pend(ctx, t, s, d, terms, false)
			time.Sleep(time.Second)
			if is := p.now(); is.over == 0 || (is.err == nil) != c.served || is.err != nil && !errors.Is(is.err, context.Canceled) {
				t.Errorf("over after %v: %v", is.over, is.err)
			}
			p.w.Close()
		})
	}
}

// TestWait_TheNextOfTheLineAsksSoon when the first waiter has gone and no other one asks.
func TestWait_TheNextOfTheLineAsksSoon(t *testing.T) {
	d := &audible{address: "here"}
	d.acquire, d.renew = answers(queued), answersTo(queued)
	stage(t, d, func(t *testing.T, s *Session) {
		s.Listen()
		synctest.Wait()
		var all []*pending
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			all = append(all, pend(ctx, t, s, &d.script, usual(), false))
		}
		// All have just asked, at the same time.
		due := func(i int) time.Duration {
			return locked(&s.keeper.mu, func() time.Duration { return s.keeper.epoch.Time(s.keeper.heap.due(&all[i].w.task)).Sub(s.Now()) })
		}
		if first := due(0); first > time.Second || due(1) < 4*time.Second || due(2) < 4*time.Second {
			t.Errorf("due after %v, %v and %v", first, due(1), due(2))
		}
		all[0].w.Close()
		if second := due(1); second != time.Second || due(2) < 4*time.Second {
			t.Errorf("due after %v and %v", second, due(2))
		}
		all[2].w.Close()
		all[1].w.Close()
		cancel()
	})
}

// TestWait_HR_D9_PollsOnceTheStoreHasDroppedTheTicket, until any hint arrives: the hint for this
// waiter may have been lost. It does not poll if the session has subscribed again, because that
// explains the drop.
func TestWait_HR_D9_PollsOnceTheStoreHasDroppedTheTicket(t *testing.T) {
	for _, resynced := range []bool{false, true} {
		d := &audible{address: "here"}
		d.acquire = answers(queued)
		var gone atomic.Bool
		d.renew = func(context.Context, int, *driver.Ref) (driver.Reply, error) {
			if gone.Swap(false) {
				return driver.Reply{}, nil
			}
			return queued, nil
		}
		stage(t, d, func(t *testing.T, s *Session) {
			s.Listen()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			p := pend(ctx, t, s, &d.script, usual(), false)
			gone.Store(true)
			if resynced {
				d.says(driver.Hint{Kind: driver.HintResync})
			}
			addresses := func() (all []string) {
				for _, q := range d.of("acquire") {
					all = append(all, q.req.HintAddress)
				}
				for _, q := range d.of("renew") {
					all = append(all, q.ref.HintAddress)
				}
				return slices.Compact(all)
			}
			time.Sleep(2 * time.Second)
			want := []string{"here", "", "here", ""} // the acquires, and then the renewals
			if resynced {
				want = []string{"here"}
			}
			if got := addresses(); !slices.Equal(got, want) {
				t.Errorf("resynced: %v: the tickets were at %q, want %q", resynced, got, want)
			}
			d.says(driver.Hint{Kind: driver.HintAsk, ID: "somebody else"})
			time.Sleep(2 * time.Second)
			if q := d.of("renew"); q[len(q)-1].ref.HintAddress != "here" {
				t.Errorf("after a hint the ticket is at %q", q[len(q)-1].ref.HintAddress)
			}
			cancel()
			synctest.Wait()
			p.w.Close()
		})
	}
}

// TestWait_WhoeverAsksFirstTakesItsLockByAnAcquire: a renewal that grants it only wakes the
// caller, and a store without tickets gets no other requests.
func TestWait_WhoeverAsksFirstTakesItsLockByAnAcquire(t *testing.T) {
	for _, c := range []struct {
		name             string
		first, renewed   driver.Reply
		acquires, renews int
	}{
		{"by a ticket", queued, driver.Reply{State: driver.Granted, Token: 8}, 2, 1},
		{"by a ticket that is gone", queued, driver.Reply{}, 2, 1},
		{"without a ticket", driver.Reply{State: driver.Busy}, driver.Reply{State: driver.Granted, Token: 8}, 2, 0},
	} {
		d := &script{acquire: answers(c.first, driver.Reply{State: driver.Granted, Token: 9}), renew: answersTo(c.renewed)}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			s.lines.join("k", new(Waiter)) // another waiter is before it
			terms := usual()
			terms.Policy.AskFirst = true
			p := pend(t.Context(), t, s, d, terms, false)
			time.Sleep(time.Second)
			if n, m := len(d.of("acquire")), len(d.of("renew")); n != c.acquires || m != c.renews || p.now().err != nil || p.now().a.Token != 9 {
				t.Errorf("%d acquires, %d renewals: %+v", n, m, p.now())
			}
			p.w.Close()
		})
	}
}

// TestStop_WaitsForARenewalUnderWay, and does not keep the place from then on.
func TestStop_WaitsForARenewalUnderWay(t *testing.T) {
	d := &script{acquire: answers(queued)}
	d.renew = func(context.Context, int, *driver.Ref) (driver.Reply, error) {
		time.Sleep(300 * ms)
		return driver.Reply{State: driver.Granted}, nil
	}
	for _, at := range []time.Duration{100 * ms, 600 * ms} {
		stage(t, d, func(t *testing.T, s *Session) {
			d.forget()
			ctx, cancel := context.WithCancel(t.Context())
			p := pend(ctx, t, s, d, usual(), false)
			time.Sleep(at)
			flying := len(d.of("renew"))
			cancel()
			synctest.Wait()
			var stopped atomic.Int32
			for range 2 {
				go func() {
					p.w.Stop()
					stopped.Add(1)
				}()
			}
			synctest.Wait()
			if n := int(stopped.Load()); n != 2-2*flying {
				t.Errorf("%d have stopped with %d renewals under way", n, flying)
			}
			time.Sleep(300 * ms)
			synctest.Wait()
			if settled := locked(&p.w.mu, p.w.settled); stopped.Load() != 2 || settled {
				t.Errorf("%d have stopped, settled: %v", stopped.Load(), settled)
			}
			p.w.Stop()
			time.Sleep(time.Hour)
			if n := len(d.of("renew")); n != flying {
				t.Errorf("renewed %d times", n)
			}
			p.w.Close()
		})
	}
	stage(t, d, func(t *testing.T, s *Session) {
		w, err := s.NewWaiter(usual(), usual().request())
		must(t, err)
		w.Stop() // it has never waited
		w.Close()
	})
}

// TestWaiter_AsksByTheTicketOrItself: it does not ask once it has its outcome or was stopped, and
// the caller asks where only an Acquire may ask.
func TestWaiter_AsksByTheTicketOrItself(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		change func(w *Waiter)
		ticket bool
		wakes  bool
	}{
		{"as usual", func(*Waiter) {}, true, false},
		{"granted", func(w *Waiter) { w.end = new(Answer) }, false, false},
		{"gone", func(w *Waiter) { w.gone = true }, false, false},
		{"failed", func(w *Waiter) { w.err = errReset }, false, false},
		{"stopped", func(w *Waiter) { w.stopped = true }, false, false},
		{"left", func(w *Waiter) { w.ctx = ended }, false, true},
		{"first, asks first", func(w *Waiter) { w.t.Policy.AskFirst = true }, false, true},
		{"second, asks first", func(w *Waiter) { w.t.Policy.AskFirst = true; w.place = w.s.lines.join("k", w) }, true, false},
		{"second, asks first, without a ticket", func(w *Waiter) { w.t.Policy.AskFirst, w.busy = true, true; w.place = w.s.lines.join("k", w) }, false, true},
		{"without a ticket", func(w *Waiter) { w.busy = true }, true, false},
	} {
		play(t, c.name, new(script), func(t *testing.T, s *Session) {
			w := kept(s)
			c.change(w)
			_, try, ok := w.Ask(s.Now())
			if ok != c.ticket || w.flying != ok || ok && try != time.Second || (len(w.woken) > 0) != c.wakes {
				t.Errorf("it asks by its ticket: %v, for %v, and wakes: %v", ok, try, len(w.woken) > 0)
			}
			w.landed = make(chan struct{})
			done, before := w.settled() || w.stopped, w.end
			next := w.Answer(s.Now(), queued, nil)
			if w.flying || w.landed != nil || w.end != before || next.IsZero() != done || w.answered.IsZero() != done {
				t.Errorf("an answer makes of it %+v, and it asks at %v", w.end, next)
			}
		})
	}
}

// kept returns a waiter without a caller, whose ticket is in the store, without an address.
func kept(s *Session) *Waiter {
	t := usual()
	w := &Waiter{s: s, t: t, req: *t.request(), woken: make(chan struct{}, 1), ctx: context.Background(), asked: true}
	w.task = task{of: w}
	w.place = s.lines.join("k", w)
	return w
}

// TestWaiter_TakesHintsThatAreForIt, and a hint that overtakes its first answer when that answer
// comes.
func TestWaiter_TakesHintsThatAreForIt(t *testing.T) {
	const none = -1
	ask := func(after time.Duration) driver.Hint {
		return driver.Hint{Kind: driver.HintAsk, ID: "a", Key: "k", RetryAfter: after}
	}
	for _, c := range []struct {
		name   string
		hint   driver.Hint
		change func(w *Waiter)
		due    time.Duration // when its ticket is renewed; none means unchanged
		wakes  bool
		early  bool
		resync bool
	}{
		{name: "to ask", hint: ask(0), due: 0},
		{name: "to ask soon", hint: ask(1), due: ms + 1},
		{name: "to ask later", hint: ask(time.Second), due: time.Second + ms},
		{name: "to ask much later", hint: ask(time.Hour), due: none},
		{name: "to ask, of somebody else", hint: driver.Hint{Kind: driver.HintAsk, ID: "b"}, due: none},
		{name: "to ask, of one that has its outcome", hint: ask(0), change: func(w *Waiter) { w.gone = true }, due: none},
		{name: "to ask, of one that has not asked", hint: ask(0), change: func(w *Waiter) { w.asked = false; w.answered = time.Time{} }, due: none},
		{name: "to ask, before the first answer", hint: ask(0), change: func(w *Waiter) { w.answered = time.Time{} }, due: none, early: true},
		{name: "a resync", hint: driver.Hint{Kind: driver.HintResync}, due: 0, resync: true},
		{name: "a break", hint: driver.Hint{Kind: driver.HintBroken, Key: "k", ID: "a"}, due: 0},
		{name: "a break elsewhere", hint: driver.Hint{Kind: driver.HintBroken, Key: "l", ID: "a"}, due: none},
		{name: "to ask, which asks first", hint: ask(0), change: func(w *Waiter) { w.t.Policy.AskFirst = true }, due: none, wakes: true},
		{name: "to ask later, which asks first", hint: ask(time.Second), change: func(w *Waiter) { w.t.Policy.AskFirst = true }, due: time.Second + ms},
		{name: "to ask a moment later, which asks first", hint: ask(1), change: func(w *Waiter) { w.t.Policy.AskFirst = true }, due: ms + 1},
		{name: "a resync, which asks first", hint: driver.Hint{Kind: driver.HintResync}, change: func(w *Waiter) { w.t.Policy.AskFirst = true }, due: 0, resync: true},
		{name: "a grant, which asks first", hint: driver.Hint{Kind: driver.HintGranted, ID: "a", Clock: 2 * time.Second, ConfirmWindow: time.Second}, change: func(w *Waiter) { w.t.Policy.AskFirst = true }, due: none, wakes: true},
		{name: "a grant", hint: driver.Hint{Kind: driver.HintGranted, ID: "a", Clock: 2 * time.Second, ConfirmWindow: time.Second}, due: none, wakes: true},
		{name: "a grant without a clock", hint: driver.Hint{Kind: driver.HintGranted, ID: "a", ConfirmWindow: time.Second}, due: 0},
	} {
		play(t, c.name, new(script), func(t *testing.T, s *Session) {
			w := kept(s)
			w.answered, w.clock = s.Now(), time.Second
			s.keeper.Add(&w.task, s.Now().Add(time.Minute))
			time.Sleep(time.Second)
			if c.change != nil {
				c.change(w)
			}
			w.hint(c.hint)
			due, want := s.keeper.epoch.Time(s.keeper.heap.due(&w.task)).Sub(s.Now()), c.due
			if want == none {
				want = 59 * time.Second
			}
			if due != want || (len(w.woken) > 0) != c.wakes || (w.early != nil) != c.early || w.resynced != c.resync {
				t.Errorf("due after %v, wakes: %v, waits for the answer: %v, resynced: %v", due, len(w.woken) > 0, w.early != nil, w.resynced)
			}
			if w.early != nil {
				w.keep(&Answer{Reply: queued, sent: s.Now()})
				if due := s.keeper.epoch.Time(s.keeper.heap.due(&w.task)).Sub(s.Now()); due != 0 || w.early != nil {
					t.Errorf("once it is answered it is due after %v", due)
				}
			}
			s.keeper.Remove(&w.task)
		})
	}
}

// TestSince_CountsAHandOverFromWhenItWasAtTheEarliest: by the store's clock since the last
// answer, a little earlier because that clock may be faster, and never in the future.
func TestSince_CountsAHandOverFromWhenItWasAtTheEarliest(t *testing.T) {
	for _, c := range []struct {
		name        string
		then, clock time.Duration // the store's, in the last answer and in the hint
		passed      time.Duration // here
		window      time.Duration
		want        time.Duration // after the last answer
		ok          bool
	}{
		{"at once", 10 * time.Second, 12 * time.Second, 2 * time.Second, time.Second, 1980 * ms, true},
		{"with a fast clock", 10 * time.Second, 14 * time.Second, 2 * time.Second, time.Second, 2 * time.Second, true},
		{"at the last moment", 10 * time.Second, 12 * time.Second, 1980*ms + 988*ms - 1, time.Second, 1980 * ms, true},
		{"too late", 10 * time.Second, 12 * time.Second, 1980*ms + 988*ms, time.Second, 1980 * ms, false},
		{"in the same moment", 10 * time.Second, 10 * time.Second, 0, time.Second, 0, true},
		{"a moment later", 1, 2, 0, time.Second, 0, true},
		{"before the answer", 10 * time.Second, 10*time.Second - 1, 2 * time.Second, time.Second, 0, false},
		{"without a clock", 0, 12 * time.Second, 2 * time.Second, time.Second, 0, false},
	} {
		stage(t, new(script), func(t *testing.T, s *Session) {
			w := kept(s)
			w.answered, w.clock = s.Now(), c.then
			begin := s.Now()
			time.Sleep(c.passed)
			at, ok := w.since(driver.Hint{Clock: c.clock, ConfirmWindow: c.window}, s.Now())
			if ok != c.ok || ok && at.Sub(begin) != c.want {
				t.Errorf("%s: %v after the answer (%v), want %v", c.name, at.Sub(begin), ok, c.want)
			}
			// The hint has the same effect.
			w.hint(driver.Hint{Kind: driver.HintGranted, ID: "a", Token: 9, Clock: c.clock, ConfirmWindow: c.window})
			if (w.end != nil) != c.ok || c.ok && (w.end.Token != 9 || w.end.window != c.window || w.end.Sent().Sub(begin) != c.want) {
				t.Errorf("%s: a hint makes of it %+v", c.name, w.end)
			}
		})
	}
}

func TestWaiter_OneThatIsUsedAgainKnowsNothingOfItsLastUser(t *testing.T) {
	d := &script{acquire: answers(errReset, driver.Reply{State: driver.Granted}, driver.Reply{State: driver.Busy})}
	stage(t, d, func(t *testing.T, s *Session) {
		for range 50 { // the pool may give another one
			d.forget()
			w, err := s.NewWaiter(usual(), usual().request())
			must(t, err)
			if w.asked || w.unanswered || w.early != nil || !w.began.IsZero() || w.waited || w.Slack() != 250*ms {
				t.Fatalf("it begins as %+v", w)
			}
			begin := s.Now()
			for range 2 {
				if _, err := w.Queue(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !w.Unanswered() || !w.began.Equal(begin) || !w.asked {
				t.Errorf("unanswered: %v, began at %v, want %v", w.Unanswered(), w.began, begin)
			}
			w.hint(driver.Hint{Kind: driver.HintAsk, ID: "a"})
			w.Close()
		}
	})
}

// TestSight_FollowsWhatTheStoreSays of the place and of the lease before it, which is unknown
// once the place has changed.
func TestSight_FollowsWhatTheStoreSays(t *testing.T) {
	begin := time.Now()
	later := func(d time.Duration) time.Time { return begin.Add(d) }
	holder := []driver.Holder{{ID: "h", Remaining: 10 * time.Second}, {ID: "i"}}
	type seen struct {
		position  int
		id        string
		remaining time.Duration // 4 s after the beginning
	}
	for _, c := range []struct {
		name string
		do   func(s *lastSeen)
		want seen
	}{
		{"nothing is known", func(*lastSeen) {}, seen{}},
		{"a holder is told", func(s *lastSeen) { s.answer(begin, &driver.Reply{Position: 3, Holders: holder}) }, seen{3, "h", 6 * time.Second}},
		{"a holder's time is over", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 3, Holders: []driver.Holder{{ID: "h", Remaining: time.Second}}})
		}, seen{3, "h", 0}},
		{"the same place", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 3, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 3, RetryAfter: time.Minute})
		}, seen{3, "h", 6 * time.Second}},
		{"another place", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 3, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 2, RetryAfter: time.Minute})
		}, seen{2, "", 0}},
		{"the first place, and when to ask", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 1, RetryAfter: 20 * time.Second})
		}, seen{1, "h", 17 * time.Second}},
		{"the first place behind another library, and when to ask", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: []driver.Holder{{Remaining: 10 * time.Second, Foreign: true}}})
			s.answer(later(time.Second), &driver.Reply{Position: 1, RetryAfter: 500 * time.Millisecond})
			s.lead(later(time.Second), 500*time.Millisecond)
		}, seen{1, "", 6 * time.Second}},
		{"the first place, and nothing else", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 1})
		}, seen{1, "h", 6 * time.Second}},
		{"the first place, and to ask at once", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.answer(later(time.Second), &driver.Reply{Position: 1, RetryAfter: 1})
		}, seen{1, "h", 0}},
		{"the first place by a hint to ask at once", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.lead(later(time.Second), 1)
		}, seen{1, "h", 0}},
		{"the first place by a hint", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 2, Holders: holder})
			s.lead(later(time.Second), 20*time.Second)
		}, seen{1, "", 17 * time.Second}},
		{"the first place by a hint that says no time", func(s *lastSeen) {
			s.answer(begin, &driver.Reply{Position: 1, Holders: holder})
			s.lead(later(time.Second), 0)
		}, seen{1, "h", 6 * time.Second}},
	} {
		s := new(lastSeen)
		c.do(s)
		h := s.now(later(4 * time.Second))
		if got := (seen{s.position, h.ID, h.Remaining}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
