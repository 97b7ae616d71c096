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

// outcome is what a wait came to.
type outcome struct {
	a    Answer
	err  error
	over time.Duration // when it ended, since the test began; 0 while it has not
	saw  []Progress
}

// now is what has become of the wait by now.
func (p *pending) now() outcome {
	synctest.Wait()
	return locked(&p.mu, func() outcome { return p.outcome })
}

// pend has somebody ask for a lock, and wait for it.
func pend(ctx context.Context, t *testing.T, s *Session, d *script, terms *Terms, observe bool) *pending {
	t.Helper()
	w, err := s.NewWaiter(terms, terms.request())
	if err != nil {
		t.Fatal(err)
	}
	p := &pending{w: w}
	a, err := w.Queue(ctx)
	if err != nil {
		t.Fatal(err)
	}
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

// TestWait_EndsByWhatTheStoreSaysOfTheTicket.
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
			name: "granted to one that asks first", change: func(t *Terms) { t.Policy.AskFirst = true },
			acquired: []any{queued, granted}, over: time.Second, asked: 3, state: driver.Granted,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			acquire := answers(append([]any{queued}, c.acquired...)...)
			d := &script{acquire: acquire}
			if c.renewed != nil {
				d.renew = answersTo(c.renewed...)
			}
			stage(t, d, func(t *testing.T, s *Session) {
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
		})
	}
}

// TestWait_TicketIsKeptByWhatTheStoreKnowsOfTheAddress: without one it is renewed twice a
// second, for three seconds; with one every five, for fifteen; and every second by the
// first of its process. A try has a third of that.
func TestWait_TicketIsKeptByWhatTheStoreKnowsOfTheAddress(t *testing.T) {
	for _, c := range []struct {
		name    string
		address string
		second  bool // of the line
		every   time.Duration
		life    time.Duration
	}{
		{"no address, first", "", false, 500 * ms, 3 * time.Second}, {"no address, second", "", true, 500 * ms, 3 * time.Second},
		{"first", "here", false, time.Second, 15 * time.Second}, {"second", "here", true, 5 * time.Second, 15 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &audible{address: c.address}
			var lost atomic.Bool
			d.acquire = answers(queued)
			d.renew = func(context.Context, int, *driver.Ref) (driver.Reply, error) {
				if lost.Load() {
					return driver.Reply{}, errReset
				}
				return queued, nil
			}
			onStage(t, d, func(t *testing.T, s *Session, _ *atomic.Int32) {
				s.Listen()
				synctest.Wait()
				if c.second {
					s.lines.join("k", new(Waiter))
				}
				p := pend(t.Context(), t, s, &d.script, usual(), false)
				if q := d.of("acquire")[0].req; q.HintAddress != c.address || q.TicketTTL != c.life {
					t.Errorf("asked for by %+v", q)
				}
				time.Sleep(time.Minute)
				last := time.Duration(0)
				all := d.of("renew")
				for _, q := range all {
					if wait := q.at - last; wait > c.every || wait < c.every*9/10 || q.limit != c.life/3 || q.ref.TicketTTL != c.life || q.ref.HintAddress != c.address || q.ref.TTL != usual().TTL {
						t.Errorf("renewed after %v for %v by %+v", wait, q.limit, q.ref)
					}
					last = q.at
				}
				if len(all) < int(time.Minute/c.every) || p.now().over != 0 {
					t.Errorf("renewed %d times", len(all))
				}
				// What it does not answer is asked again, later each time.
				lost.Store(true)
				for len(d.of("renew")) == len(all) {
					time.Sleep(ms)
				}
				time.Sleep(31 * time.Second)
				all = d.of("renew")[len(all):]
				for i, q := range all[1:] {
					last := i == len(all)-2 // when the patience ends
					if want := min(500*ms<<min(i, 10), c.life/6); q.at-all[i].at > want || q.at-all[i].at < want*9/10 && !last {
						t.Errorf("retried after %v, want %v", q.at-all[i].at, want)
					}
				}
				if is := p.now(); !errors.Is(is.err, ErrUnknown) || is.over != all[0].at+30*time.Second {
					t.Errorf("over after %v: %v", is.over-all[0].at, is.err)
				}
				p.w.Close()
			})
		})
	}
}

// TestWait_AnAnsweredQuestionEndsAnOutage: the next outage counts from its own beginning.
// While the store answers others there is none.
func TestWait_AnAnsweredQuestionEndsAnOutage(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails func(at time.Duration) error
		heard bool // others are, all the time
		over  time.Duration
	}{
		{"with answers between", func(at time.Duration) error {
			if at%(4*time.Second) < 3*time.Second && at < time.Minute {
				return errReset
			}
			return nil
		}, false, 0},
		{"without", func(time.Duration) error { return errReset }, false, 10500 * ms},
		{"while others are answered", func(time.Duration) error { return errReset }, true, 0},
		{"a refusal while others are answered", func(time.Duration) error { return driver.ErrUnavailable }, true, 0},
		{"a refusal, after an answer", func(at time.Duration) error {
			if at < 5*time.Second || at > 6*time.Second {
				return driver.ErrUnavailable
			}
			return nil
		}, false, 16500 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &script{acquire: answers(queued)}
			d.renew = func(context.Context, int, *driver.Ref) (driver.Reply, error) {
				return queued, c.fails(time.Since(d.start))
			}
			stage(t, d, func(t *testing.T, s *Session) {
				terms := usual()
				terms.MaxOutage = 10 * time.Second
				ctx, cancel := context.WithCancel(t.Context())
				p := pend(ctx, t, s, d, terms, false)
				for range 60 {
					time.Sleep(500 * ms)
					if c.heard {
						s.hear(s.Now())
					}
					known := locked(&p.w.mu, func() bool { return (p.w.failures > 0) == (p.w.failed != nil) })
					if p.now().over == 0 && !known {
						t.Fatal("there are failures, or the last failed, and not both")
					}
				}
				if is := p.now(); is.over > c.over || is.over < c.over*9/10 {
					t.Errorf("over after %v: %v", is.over, is.err)
				}
				cancel()
				synctest.Wait()
				p.w.Close()
			})
		})
	}
}

// TestWait_ThatEndsSaysWhatItSaw: why it ended, for how long it lasted, the place, and what
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
		t.Run(c.name, func(t *testing.T) {
			d := &script{acquire: answers(queued), renew: answersTo(c.renew)}
			stage(t, d, func(t *testing.T, s *Session) {
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
		})
	}
}

// TestWait_WhatWasMissedBeforeAnAnswerIsNotTold: a wait that ends knows what the store said
// last.
func TestWait_WhatWasMissedBeforeAnAnswerIsNotTold(t *testing.T) {
	d := &script{renew: answersTo(driver.Reply{})} // its ticket is gone, so it asks anew
	stage(t, d, func(t *testing.T, s *Session) {
		ctx, cancel := context.WithCancel(t.Context())
		d.acquire = func(_ context.Context, n int, _ *driver.Request) (driver.Reply, error) {
			switch n {
			case 2:
				return driver.Reply{}, errReset
			case 3:
				cancel()
			}
			return queued, nil
		}
		p := pend(ctx, t, s, d, usual(), false)
		time.Sleep(time.Minute)
		is := p.now()
		matches(t, is.err, []error{context.Canceled}, []error{ErrUnknown, errReset})
		p.w.Close()
	})
}

// TestWait_MayHaveTheLockWhenItsNextAcquireIsRefused: the ticket is gone, perhaps because it
// was handed the lock.
func TestWait_MayHaveTheLockWhenItsNextAcquireIsRefused(t *testing.T) {
	d := &script{acquire: answers(queued, driver.ErrUnavailable), renew: answersTo(driver.Reply{})}
	stage(t, d, func(t *testing.T, s *Session) {
		p := pend(t.Context(), t, s, d, usual(), false)
		time.Sleep(time.Minute)
		is := p.now()
		matches(t, is.err, []error{ErrUnknown}, []error{driver.ErrUnavailable})
		p.w.Close()
	})
}

// TestWait_ASecondAnswerAfterTheEndOfTheContext is kept only by those who carry through
// what they have begun.
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
		t.Run(c.name, func(t *testing.T) {
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
			stage(t, d, func(t *testing.T, s *Session) {
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
		})
	}
}

// TestWait_TheNextOfTheLineAsksSoon when the first has gone, and nobody else does.
func TestWait_TheNextOfTheLineAsksSoon(t *testing.T) {
	d := &audible{address: "here"}
	d.acquire, d.renew = answers(queued), answersTo(queued)
	onStage(t, d, func(t *testing.T, s *Session, _ *atomic.Int32) {
		s.Listen()
		synctest.Wait()
		var all []*pending
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			all = append(all, pend(ctx, t, s, &d.script, usual(), false))
		}
		// All have just asked, at the same time.
		due := func(i int) time.Duration {
			return locked(&s.keeper.mu, func() time.Duration { return s.keeper.epoch.Time(s.keeper.agenda.due(&all[i].w.task)).Sub(s.Now()) })
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

// TestWait_PollsOnceTheStoreHasDroppedTheTicket, until a hint arrives, for whomever: one that
// was for us may have been lost. Where the session has begun to listen anew, that is why.
func TestWait_PollsOnceTheStoreHasDroppedTheTicket(t *testing.T) {
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
		onStage(t, d, func(t *testing.T, s *Session, _ *atomic.Int32) {
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

// TestWait_WakesOnceForWhatComesMeanwhile: however often it is woken or told while its
// caller is busy, it asks once, and shows what is known by then once.
func TestWait_WakesOnceForWhatComesMeanwhile(t *testing.T) {
	d := &script{acquire: answers(queued)}
	stage(t, d, func(t *testing.T, s *Session) {
		w, err := s.NewWaiter(usual(), usual().request())
		if err != nil {
			t.Fatal(err)
		}
		w.t.Policy.AskFirst = true
		ctx, cancel := context.WithCancel(t.Context())
		a, err := w.Queue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		free := make(chan struct{})
		var shown atomic.Int32
		go func() {
			_ = w.Wait(ctx, &a, func(Progress) {
				shown.Add(1)
				<-free
			})
		}()
		synctest.Wait()
		answered := func(n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for range n {
				w.queued(s.Now(), queued)
			}
		}
		answered(3)
		for range 2 {
			free <- struct{}{}
			synctest.Wait()
		}
		if n := shown.Load(); n != 2 {
			t.Errorf("shown %d times", n)
		}
		answered(1)
		synctest.Wait() // it is shown
		for range 3 {
			w.hint(driver.Hint{Kind: driver.HintGranted, ID: "a"})
		}
		before := len(d.of("acquire"))
		close(free)
		synctest.Wait()
		if n := len(d.of("acquire")) - before; n != 1 {
			t.Errorf("asked %d times", n)
		}
		cancel()
		synctest.Wait()
		w.Close()
	})
}

// TestWait_WhoeverAsksFirstTakesItsLockByAnAcquire: a renewal that grants it only tells, and
// a store without tickets is asked for nothing else.
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
		t.Run(c.name, func(t *testing.T) {
			d := &script{acquire: answers(c.first, driver.Reply{State: driver.Granted, Token: 9}), renew: answersTo(c.renewed)}
			stage(t, d, func(t *testing.T, s *Session) {
				s.lines.join("k", new(Waiter)) // somebody is before it
				terms := usual()
				terms.Policy.AskFirst = true
				p := pend(t.Context(), t, s, d, terms, false)
				time.Sleep(time.Second)
				if n, m := len(d.of("acquire")), len(d.of("renew")); n != c.acquires || m != c.renews || p.now().err != nil || p.now().a.Token != 9 {
					t.Errorf("%d acquires, %d renewals: %+v", n, m, p.now())
				}
				p.w.Close()
			})
		})
	}
}
