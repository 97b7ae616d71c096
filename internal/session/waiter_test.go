package session

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestStop_WaitsForARenewalUnderWay, and nothing is kept from then on.
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
		if err != nil {
			t.Fatal(err)
		}
		w.Stop() // it has never waited
		w.Close()
	})
}

// TestWaiter_AsksByTheTicketOrItself: nothing for one that has its outcome or has been
// stopped, and the caller itself where only an Acquire may ask.
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
		t.Run(c.name, func(t *testing.T) {
			stage(t, new(script), func(t *testing.T, s *Session) {
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
		})
	}
}

// kept is a waiter without a caller, whose ticket is known without an address.
func kept(s *Session) *Waiter {
	t := usual()
	w := &Waiter{s: s, t: t, req: *t.request(), woken: make(chan struct{}, 1), ctx: context.Background(), asked: true}
	w.task = task{of: w}
	w.place = s.lines.join("k", w)
	return w
}

// TestWaiter_TakesHintsThatAreForIt, and what overtakes its first answer when that comes.
func TestWaiter_TakesHintsThatAreForIt(t *testing.T) {
	const none = -1
	ask := func(after time.Duration) driver.Hint {
		return driver.Hint{Kind: driver.HintAsk, ID: "a", Key: "k", RetryAfter: after}
	}
	for _, c := range []struct {
		name   string
		hint   driver.Hint
		change func(w *Waiter)
		due    time.Duration // when its ticket is renewed; none is as before
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
		t.Run(c.name, func(t *testing.T) {
			stage(t, new(script), func(t *testing.T, s *Session) {
				w := kept(s)
				w.answered, w.clock = s.Now(), time.Second
				s.keeper.Add(&w.task, s.Now().Add(time.Minute))
				time.Sleep(time.Second)
				if c.change != nil {
					c.change(w)
				}
				w.hint(c.hint)
				due, want := s.keeper.epoch.Time(s.keeper.agenda.due(&w.task)).Sub(s.Now()), c.due
				if want == none {
					want = 59 * time.Second
				}
				if due != want || (len(w.woken) > 0) != c.wakes || (w.early != nil) != c.early || w.resynced != c.resync {
					t.Errorf("due after %v, wakes: %v, waits for the answer: %v, resynced: %v", due, len(w.woken) > 0, w.early != nil, w.resynced)
				}
				if w.early != nil {
					w.keep(&Answer{Reply: queued, sent: s.Now()})
					if due := s.keeper.epoch.Time(s.keeper.agenda.due(&w.task)).Sub(s.Now()); due != 0 || w.early != nil {
						t.Errorf("once it is answered it is due after %v", due)
					}
				}
				s.keeper.Remove(&w.task)
			})
		})
	}
}

// TestSince_CountsAHandOverFromWhenItWasAtTheEarliest: by the store's clock since the last
// answer, a little earlier for what that may be the faster, and never from later than now.
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
			// The hint says the same.
			w.hint(driver.Hint{Kind: driver.HintGranted, ID: "a", Token: 9, Clock: c.clock, ConfirmWindow: c.window})
			if (w.end != nil) != c.ok || c.ok && (w.end.Token != 9 || w.end.window != c.window || w.end.Sent().Sub(begin) != c.want) {
				t.Errorf("%s: a hint makes of it %+v", c.name, w.end)
			}
		})
	}
}

// TestAnswer_AGrantThatCameTooLateIsAskedForAgain at once.
func TestAnswer_AGrantThatCameTooLateIsAskedForAgain(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		w := kept(s)
		sent := s.Now()
		time.Sleep(29698*ms - 1)
		late := kept(s)
		if next := w.Answer(sent, driver.Reply{State: driver.Granted}, nil); !next.IsZero() || w.end == nil {
			t.Errorf("in time: asked again at %v", next)
		}
		time.Sleep(time.Nanosecond)
		if next := late.Answer(sent, driver.Reply{State: driver.Granted}, nil); !next.Equal(s.Now()) || late.end != nil || !errors.Is(late.failed, timing.ErrLate) {
			t.Errorf("too late: asked again at %v", next)
		}
	})
}

// TestWaiter_OneThatIsUsedAgainKnowsNothingOfItsLastUser.
func TestWaiter_OneThatIsUsedAgainKnowsNothingOfItsLastUser(t *testing.T) {
	d := &script{acquire: answers(errReset, driver.Reply{State: driver.Granted}, driver.Reply{State: driver.Busy})}
	stage(t, d, func(t *testing.T, s *Session) {
		for range 50 { // the pool may give another one
			d.forget()
			w, err := s.NewWaiter(usual(), usual().request())
			if err != nil {
				t.Fatal(err)
			}
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
