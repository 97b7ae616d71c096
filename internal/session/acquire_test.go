package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// answers returns the answers of a store to one question after the other; the last is repeated. A
// nil answer hangs.
func answers(all ...any) func(context.Context, int, *driver.Request) (driver.Reply, error) {
	return func(ctx context.Context, n int, _ *driver.Request) (driver.Reply, error) {
		switch a := all[min(n, len(all))-1].(type) {
		case error:
			return driver.Reply{}, a
		case driver.Reply:
			return a, nil
		}
		return hang(ctx)
	}
}

// TestTry_AsksAsOftenAndAsLongAsItSays checks the times and limits of the questions of a try, and
// its result: the outcome is unknown, and is undone, if a question that may have had an effect
// was not answered.
func TestTry_AsksAsOftenAndAsLongAsItSays(t *testing.T) {
	granted, gone := driver.Reply{State: driver.Granted, Token: 7}, driver.Reply{State: driver.Gone}
	broken := driver.Reply{State: driver.Gone, Broken: true, Reason: "by hand"}
	for _, c := range []struct {
		name    string
		store   []any
		change  func(*Terms)
		times   []time.Duration
		limits  []time.Duration
		state   driver.State
		unknown bool // the error is ErrUnknown
		open    bool // a question was not answered
		undone  bool
		says    []string
	}{
		{name: "grants", store: []any{granted}, times: []time.Duration{0}, limits: []time.Duration{5 * time.Second}, state: driver.Granted},
		{name: "is busy", store: []any{driver.Reply{State: driver.Busy}}, times: []time.Duration{0}, state: driver.Busy},
		{
			name: "refuses", store: []any{driver.ErrUnavailable}, times: []time.Duration{0, 20 * ms, 60 * ms},
			limits: []time.Duration{5 * time.Second, 4990 * ms, 4970 * ms}, says: []string{"asked for 60ms"},
		},
		{
			name: "hangs", store: []any{nil}, unknown: true, open: true, undone: true, says: []string{"asked for 10.001s", "deadline exceeded"},
			times:  []time.Duration{0, 5020 * ms, 7550 * ms, 8855 * ms, 10 * time.Second},
			limits: []time.Duration{5 * time.Second, 2490 * ms, 1225 * ms, time.Second, ms},
		},
		{
			name: "hangs longer than a try may take", store: []any{nil}, change: func(t *Terms) { t.MaxTry = 2 * time.Second },
			unknown: true, open: true, undone: true, times: []time.Duration{0, 1020 * ms}, limits: []time.Duration{time.Second, 980 * ms},
		},
		{
			name: "hangs longer than an outage may be", store: []any{nil}, change: func(t *Terms) { t.MaxOutage = 2 * time.Second },
			unknown: true, open: true, undone: true, times: []time.Duration{0, 1020 * ms}, limits: []time.Duration{time.Second, 980 * ms},
		},
		{
			name: "refuses where no outage is waited for", store: []any{driver.ErrUnavailable}, change: func(t *Terms) { t.MaxOutage = 0 },
			times: []time.Duration{0}, limits: []time.Duration{5 * time.Second}, says: []string{"-asked for"},
		},
		{
			name: "refuses where outages are waited for without end", store: []any{driver.ErrUnavailable}, change: func(t *Terms) { t.MaxOutage = -1 },
			times: []time.Duration{0, 20 * ms, 60 * ms}, limits: []time.Duration{5 * time.Second, 4990 * ms, 4970 * ms},
		},
		{name: "refuses for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, says: []string{"-asked for"}},
		{name: "loses and refuses for good", store: []any{errReset, driver.ErrInvalid}, times: []time.Duration{0, 20 * ms}, unknown: true, open: true, undone: true},
		{name: "loses, then grants", store: []any{errReset, granted}, times: []time.Duration{0, 20 * ms}, state: driver.Granted, open: true},
		{name: "refuses, then grants", store: []any{driver.ErrUnavailable, granted}, times: []time.Duration{0, 20 * ms}, state: driver.Granted},
		{name: "loses, then is busy", store: []any{errReset, driver.Reply{State: driver.Busy}}, times: []time.Duration{0, 20 * ms}, state: driver.Busy, open: true, undone: true},
		{name: "loses, then refuses", store: []any{errReset, driver.ErrUnavailable, driver.ErrUnavailable, granted}, times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, state: driver.Granted, open: true},
		{name: "reports another process's question", store: []any{driver.Reply{State: driver.Granted, InFlight: true}}, times: []time.Duration{0}, state: driver.Granted, open: true},
		{name: "has given the id up", store: []any{gone}, times: []time.Duration{0}},
		{name: "loses, then has given the id up", store: []any{errReset, gone}, times: []time.Duration{0, 20 * ms}, unknown: true, open: true, undone: true, says: []string{"reset"}},
		{name: "loses, then reports a break", store: []any{errReset, broken}, times: []time.Duration{0, 20 * ms}, open: true, undone: true},
		{
			name: "loses, then has given the id up, which is an answer", store: []any{errReset, gone}, change: func(t *Terms) { t.Policy.GoneAnswers = true },
			times: []time.Duration{0, 20 * ms}, open: true, undone: true,
		},
		{name: "loses one, and hangs", store: []any{errReset, nil}, unknown: true, open: true, undone: true, says: []string{"reset", "-deadline"}, times: []time.Duration{0, 20 * ms, 5050 * ms, 7605 * ms, 8962500 * time.Microsecond, 10 * time.Second}},
		{name: "hangs, and loses one", store: []any{nil, errReset, nil}, unknown: true, open: true, undone: true, says: []string{"reset", "-deadline"}, times: []time.Duration{0, 5020 * ms, 5060 * ms, 7610 * ms, 8965 * ms, 10 * time.Second}},
	} {
		d := &script{acquire: answers(c.store...)}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			if c.change != nil {
				c.change(terms)
			}
			a, err := s.Try(t.Context(), terms, terms.request())
			synctest.Wait()
			answered := locked(&s.asking.mu, func() bool { return s.asking.answered })
			if last := c.store[min(len(d.of("acquire")), len(c.store))-1]; errors.Is(err, ErrUnknown) != c.unknown || a.State != c.state || (err == nil) != (isReply(last) && !c.unknown) {
				t.Errorf("state %v, error %v", a.State, err)
			} else if answered != isReply(last) {
				t.Errorf("the line counts an answer: %v", answered)
			}
			for _, part := range c.says {
				if part, not := strings.CutPrefix(part, "-"); strings.Contains(fmt.Sprint(err), part) == not {
					t.Errorf("the error is %q", err)
				}
			}
			d.asksAt(t, "acquire", c.times, c.limits)
			undone := d.of("release")
			if a.Unanswered != c.open || (len(undone) > 0) != c.undone {
				t.Errorf("unanswered: %v, undone %d times", a.Unanswered, len(undone))
			}
			if c.undone && (undone[0].ref.ID != "a" || undone[0].ref.RejectIDFor != timing.ForbidFor) {
				t.Errorf("undone by %+v", undone[0].ref)
			}
		})
	}
}

func isReply(a any) bool {
	_, ok := a.(driver.Reply)
	return ok
}

// TestTry_CountsFromTheQuestionThatWasAnswered: an answer that takes longer than the lease lasts
// is ignored, and a grant counts from the question that was answered.
func TestTry_CountsFromTheQuestionThatWasAnswered(t *testing.T) {
	d := &script{acquire: func(_ context.Context, n int, _ *driver.Request) (driver.Reply, error) {
		if n == 1 {
			time.Sleep(3 * time.Second)
		}
		return driver.Reply{State: driver.Granted, Token: int64(n), Uncontended: n == 2}, nil
	}}
	stage(t, d, func(t *testing.T, s *Session) {
		terms := usual()
		terms.TTL = 2 * time.Second
		a, err := s.Try(t.Context(), terms, terms.request())
		must(t, err)
		g := a.Grant()
		if g.Token != 2 || g.Origin.Sub(d.start) != 3020*ms || !g.Uncontended || !g.handed().IsZero() {
			t.Errorf("granted %+v, %v after the beginning", g, g.Origin.Sub(d.start))
		}
		g.Window = 1
		if !g.handed().Equal(g.Origin) {
			t.Errorf("handed over at %v, want %v", g.handed(), g.Origin)
		}
	})
}

// TestAsk_EndsWithTheContextOrTheSession: its error contains the store's last error.
func TestAsk_EndsWithTheContextOrTheSession(t *testing.T) {
	stop := errors.New("stop")
	for _, c := range []struct {
		name  string
		store error
		full  bool // of requests, after the first question
		after time.Duration
		close bool
		want  []error
		not   []error
		asked int
	}{
		{name: "before it is asked", want: []error{context.Canceled, stop, driver.ErrUnavailable}, not: []error{ErrUnknown, ErrClosed}},
		{name: "after a refusal", store: driver.ErrUnavailable, after: 10 * ms, want: []error{stop, driver.ErrUnavailable}, not: []error{ErrUnknown}, asked: 1},
		{name: "after a loss", store: errReset, after: 10 * ms, want: []error{stop, ErrUnknown, errReset}, not: []error{driver.ErrUnavailable}, asked: 1},
		{name: "in the line, after a loss", store: errReset, full: true, after: 100 * ms, want: []error{stop, ErrUnknown, errReset}, not: []error{errNotAsked, errCrowded}, asked: 1},
		{name: "by a close", store: errReset, after: 10 * ms, close: true, want: []error{ErrClosed, ErrUnknown, errReset}, asked: 1},
	} {
		d := new(script)
		play(t, c.name, d, func(t *testing.T, s *Session) {
			d.acquire = func(context.Context, int, *driver.Request) (driver.Reply, error) {
				if c.full {
					fill(&s.asking)
				}
				return driver.Reply{}, c.store
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			end := func() {
				if c.close {
					go s.Close()
				} else {
					cancel(stop)
				}
			}
			if c.after == 0 {
				end()
			} else {
				time.AfterFunc(c.after, end)
			}
			_, err := s.Ask(ctx, usual(), usual().request())
			matches(t, err, c.want, c.not)
			if took := time.Since(d.start); took != c.after || len(d.of("acquire")) != c.asked {
				t.Errorf("%d questions, ended after %v", len(d.of("acquire")), took)
			}
			cancel(nil)
		})
	}
}

// fill starts as many requests as the limiter allows.
func fill(g *limiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range inFlight {
		g.countStarted()
	}
}

// TestAsk_AWaitOutlivesAnOutageWhileOthersAreServed: the time limit of an outage counts
// from the last answer to the session. If the store refuses, it counts from the last answer
// to a request for a lock. A place in the queue makes no difference.
func TestAsk_AWaitOutlivesAnOutageWhileOthersAreServed(t *testing.T) {
	for _, c := range []struct {
		name        string
		store       any
		locks       bool // others are answered when they ask for locks
		least, most time.Duration
	}{
		{"hangs", nil, true, 70 * time.Second, 71 * time.Second},
		{"refuses", driver.ErrUnavailable, true, 70 * time.Second, 71 * time.Second},
		{"refuses all locks", driver.ErrUnavailable, false, 10 * time.Second, 10500 * ms},
	} {
		for _, queue := range []bool{true, false} {
			d := &script{acquire: answers(c.store)}
			play(t, fmt.Sprint(c.name, queue), d, func(t *testing.T, s *Session) {
				terms := usual()
				terms.MaxOutage = 10 * time.Second
				go func() {
					for range 60 {
						time.Sleep(time.Second)
						s.answered(s.Now())
						if c.locks {
							s.outage.acquires.raise(s.instant(s.Now()))
						}
					}
				}()
				defer time.Sleep(time.Minute)
				w, err := s.NewWaiter(terms, terms.request())
				must(t, err)
				defer w.Close()
				if queue {
					_, err = w.Queue(t.Context())
				} else {
					_, err = s.Insist(t.Context(), terms, terms.request())
				}
				if took := time.Since(d.start); err == nil || took < c.least || took > c.most {
					t.Errorf("given up after %v: %v", took, err)
				}
			})
		}
	}
}

// TestChange_LeavesNothingOnItsWay: an unanswered request is rejected before the change counts as
// made, or else in the background.
func TestChange_LeavesNothingOnItsWay(t *testing.T) {
	resized, done := driver.Reply{State: driver.Resized}, driver.Reply{State: driver.Gone}
	for _, c := range []struct {
		name     string
		store    []any
		rejects  []any // the answers to the releases; nil hangs
		state    driver.State
		want     error // nil, or an error that it matches
		took     time.Duration
		rejected []time.Duration
	}{
		{name: "is answered", store: []any{resized}, state: driver.Resized},
		{name: "is refused, then answered", store: []any{driver.ErrUnavailable, resized}, state: driver.Resized, took: 20 * ms},
		{name: "is refused for good", store: []any{driver.ErrMismatch}, want: driver.ErrMismatch},
		{name: "is lost, then answered", store: []any{errReset, resized}, rejects: []any{done}, state: driver.Resized, took: 20 * ms, rejected: []time.Duration{20 * ms}},
		{name: "is lost, then of no use", store: []any{errReset, done}, rejects: []any{done}, want: ErrUnknown, took: 20 * ms, rejected: []time.Duration{20 * ms}},
		{name: "is lost, then refused for good", store: []any{errReset, driver.ErrMismatch}, rejects: []any{done}, want: ErrUnknown, took: 20 * ms, rejected: []time.Duration{20 * ms}},
		{name: "is rejected when the store answers", store: []any{errReset, resized}, rejects: []any{errReset, done}, state: driver.Resized},
		{name: "is not rejected in time", store: []any{errReset, resized}, rejects: []any{driver.ErrUnavailable}, state: driver.Resized, want: ErrUnknown},
	} {
		answer := answers(c.rejects...)
		d := &script{acquire: answers(c.store...), release: func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) { return answer(ctx, n, nil) }}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			a, err := s.Change(t.Context(), usual(), usual().request())
			took, before := time.Since(d.start), len(d.of("release"))
			if (err == nil) != (c.want == nil) || !errors.Is(err, c.want) || errors.Is(err, driver.ErrUnavailable) || a.State != c.state {
				t.Errorf("state %v, error %v", a.State, err)
			}
			if c.took > 0 && took != c.took {
				t.Errorf("it took %v, want %v", took, c.took)
			}
			time.Sleep(2 * timing.ForbidFor)
			late := d.of("release")
			if got := d.times("release"); c.rejected != nil && !slices.Equal(got, c.rejected) {
				t.Errorf("rejected at %v, want %v", got, c.rejected)
			}
			if c.rejects == nil && len(late) > 0 {
				t.Errorf("no request is on its way, and there are %d releases", len(late))
			}
			for _, q := range late {
				if q.ref.ID != "a" || q.ref.RejectIDFor != timing.ForbidFor {
					t.Errorf("at %v, by %+v", q.at, q.ref)
				}
			}
			if c.state == driver.Resized && c.want != nil && (took > 7*time.Second || len(late) == before) {
				t.Errorf("%d releases, and after %v %d more", before, took, len(late)-before)
			}
		})
	}
}

// TestChange_IsCalledBackHoweverLongTheStoreIsAway: a request that was lost may arrive when the
// store is back. To bound the work of a long outage, only a fixed number of requests are called
// back until the store answers; requests beyond that number are called back for a minute. Each
// call back ends with the answer, or with the session.
func TestChange_IsCalledBackHoweverLongTheStoreIsAway(t *testing.T) {
	const most, more = 100, 5
	for _, c := range []struct {
		name   string
		closed bool
	}{{name: "until it is back"}, {name: "until the session is closed", closed: true}} {
		var back atomic.Bool
		d := &script{
			acquire: func(context.Context, int, *driver.Request) (driver.Reply, error) { return driver.Reply{}, errReset },
			release: func(context.Context, int, *driver.Ref) (driver.Reply, error) {
				if back.Load() {
					return driver.Reply{State: driver.Gone}, nil
				}
				return driver.Reply{}, driver.ErrUnavailable
			},
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			change := func(n int) {
				t.Helper()
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() {
						req := usual().request()
						req.ID = fmt.Sprint(i)
						if _, err := s.Change(t.Context(), usual(), req); !errors.Is(err, ErrUnknown) {
							t.Errorf("changed: %v", err)
						}
					})
				}
				all.Wait()
			}
			// called returns how many requests are called back within ten seconds.
			called := func() int {
				d.forget()
				time.Sleep(10 * time.Second)
				ids := make(map[string]bool)
				for _, q := range d.of("release") {
					ids[q.ref.ID] = q.ref.RejectIDFor == timing.ForbidFor
				}
				return len(ids)
			}
			change(most + more)
			if n := called(); n != most+more {
				t.Errorf("%d are called back at first", n)
			}
			time.Sleep(2 * time.Minute)
			if n := called(); n != most {
				t.Errorf("%d are called back after two minutes, want %d", n, most)
			}
			if c.closed {
				begin := time.Now()
				_, _ = s.End()
				if took := time.Since(begin); took > usual().ReleaseTimeout {
					t.Errorf("the session took %v to end", took)
				}
			} else {
				back.Store(true)
				time.Sleep(5 * time.Second)
			}
			if n := called(); n != 0 {
				t.Errorf("%d are called back in the end", n)
			}
			if c.closed {
				return
			}
			back.Store(false)
			change(most + more)
			time.Sleep(2 * time.Minute)
			if n := called(); n != most {
				t.Errorf("%d are called back in the next outage, want %d", n, most)
			}
		})
	}
}

// TestConfirm_AsksUntilTheStoreHasAnswered checks the times and limits of the questions. The
// outcome is unknown only if a question may have had an effect.
func TestConfirm_AsksUntilTheStoreHasAnswered(t *testing.T) {
	granted, gone := driver.Reply{State: driver.Granted, Token: 7}, driver.Reply{State: driver.Gone}
	for _, c := range []struct {
		name   string
		store  []any
		slow   time.Duration // the first answer
		maxTry time.Duration
		times  []time.Duration
		limits []time.Duration
		want   []error
		not    []error
	}{
		{name: "grants", store: []any{granted}, times: []time.Duration{0}, limits: []time.Duration{5 * time.Second}},
		{name: "grants too late, then in time", store: []any{granted}, slow: 3 * time.Second, times: []time.Duration{0, 3020 * ms}},
		{name: "has it no more", store: []any{gone}, times: []time.Duration{0}, want: []error{ErrNotHeld}, not: []error{ErrUnknown, ErrBroken}},
		{name: "has it no more, answered late", store: []any{gone}, slow: 3 * time.Second, times: []time.Duration{0}, want: []error{ErrNotHeld}, not: []error{ErrUnknown, ErrBroken}},
		{name: "reports a break", store: []any{driver.Reply{Broken: true}}, times: []time.Duration{0}, want: []error{ErrNotHeld, ErrBroken}},
		{name: "loses, then grants", store: []any{errReset, granted}, times: []time.Duration{0, 20 * ms}},
		{name: "loses, then has it no more", store: []any{errReset, gone}, times: []time.Duration{0, 20 * ms}, want: []error{ErrNotHeld}, not: []error{ErrUnknown}},
		{name: "refuses for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, want: []error{driver.ErrInvalid}, not: []error{ErrUnknown}},
		{name: "loses, then refuses for good", store: []any{errReset, driver.ErrInvalid}, times: []time.Duration{0, 20 * ms}, want: []error{driver.ErrInvalid, ErrUnknown}},
		{
			name: "hangs", store: []any{nil}, maxTry: time.Minute, want: []error{context.DeadlineExceeded, ErrUnknown},
			times:  []time.Duration{0, 5020 * ms, 10060 * ms, 15140 * ms, 20300 * ms, 25470 * ms, 28235 * ms, 29735 * ms},
			limits: []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second, 4850 * ms},
		},
		{
			name: "refuses", store: []any{driver.ErrUnavailable}, maxTry: 100 * ms, want: []error{driver.ErrUnavailable}, not: []error{ErrUnknown},
			times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, limits: []time.Duration{100 * ms, 80 * ms, 40 * ms, ms},
		},
	} {
		d := new(script)
		store := answers(c.store...)
		d.renew = func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
			if n == 1 {
				time.Sleep(c.slow)
			}
			return store(ctx, n, nil)
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.TTL, terms.MaxTry = 2*time.Second, c.maxTry
			g, err := s.Confirm(t.Context(), terms, driver.Ref{Key: "k", ID: "a", TTL: terms.TTL}, s.Now())
			if (err == nil) != (len(c.want) == 0) {
				t.Errorf("error %v", err)
			}
			last := c.times[len(c.times)-1]
			if err == nil && (g.Token != 7 || g.Origin.Sub(d.start) != last) {
				t.Errorf("granted %+v, %v after the beginning", g, g.Origin.Sub(d.start))
			}
			matches(t, err, c.want, c.not)
			d.asksAt(t, "renew", c.times, c.limits)
		})
	}
}

// matches checks which errors err matches, and which not.
func matches(t *testing.T, err error, want, not []error) {
	t.Helper()
	for _, want := range want {
		if !errors.Is(err, want) {
			t.Errorf("%v does not match %v", err, want)
		}
	}
	for _, not := range not {
		if errors.Is(err, not) {
			t.Errorf("%v matches %v", err, not)
		}
	}
}

// looking is an inspector that answers like store, and records when it is asked.
type looking struct {
	driver.Inspector
	d     *script
	store func(context.Context, int, *driver.Request) (driver.Reply, error)
}

func (l *looking) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	n := l.d.note(ctx, question{verb: "inspect"})
	_, err := l.store(ctx, n, nil)
	return driver.Snapshot{}, err
}

// TestInspect_LooksUntilTheStoreHasAnswered: an inspection has no effect, so its outcome is never
// unknown.
func TestInspect_LooksUntilTheStoreHasAnswered(t *testing.T) {
	for _, c := range []struct {
		name      string
		store     []any
		maxTry    time.Duration
		maxOutage time.Duration
		times     []time.Duration
		limits    []time.Duration
		want      error
	}{
		{name: "answers", store: []any{driver.Reply{}}, times: []time.Duration{0}, limits: []time.Duration{5 * time.Second}},
		{name: "answers in the end", store: []any{errReset, errReset, driver.Reply{}}, times: []time.Duration{0, 20 * ms, 60 * ms}},
		{name: "refuses for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, want: driver.ErrInvalid},
		{name: "is asked once", store: []any{errReset}, maxOutage: -30 * time.Second, times: []time.Duration{0}, want: errReset},
		{name: "fails", store: []any{errReset}, maxTry: 100 * ms, times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, want: errReset},
		{name: "hangs", store: []any{nil}, maxTry: 12 * time.Second, times: []time.Duration{0, 5020 * ms, 8550 * ms, 10355 * ms, 11515 * ms}, limits: []time.Duration{5 * time.Second, 3490 * ms, 1725 * ms, time.Second, 485 * ms}, want: context.DeadlineExceeded},
		{name: "hangs for longer", store: []any{nil}, maxTry: time.Minute, limits: []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}, want: context.DeadlineExceeded},
	} {
		d := new(script)
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.MaxTry = c.maxTry
			terms.MaxOutage += c.maxOutage
			_, err := s.Inspect(t.Context(), terms, &looking{d: d, store: answers(c.store...)}, "k", s.Now())
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			d.asksAt(t, "inspect", c.times, c.limits)
		})
	}
}

// TestOnward_PassesOnWhatIsLeftOfAWritersLease, and of no other.
func TestOnward_PassesOnWhatIsLeftOfAWritersLease(t *testing.T) {
	for name, change := range map[string]func(*Hold){
		"a writer's": nil, "a reader's": func(h *Hold) { h.mode, h.reader = driver.Shared, true }, "one that is lowered here": func(h *Hold) { h.mode = driver.Shared },
		"one that may be lowered": func(h *Hold) { h.lowering = 1 }, "one whose lowering was not answered": func(h *Hold) { h.unsure = true },
		"one that is a reader's in the store": func(h *Hold) { h.reader = true },
	} {
		stage(t, new(script), func(t *testing.T, s *Session) {
			h := take(t, s, &user{terms: usual()})
			time.Sleep(5 * time.Second)
			if change != nil {
				change(h)
			}
			h.unanswered = true
			g, ok := h.Onward()
			if ok != (change == nil) || !g.Origin.Round(0).Equal(h.Granted().Round(0)) || g.Token != h.Token() || !g.Unanswered {
				t.Errorf("%s is passed on: %v, by %+v, granted at %v", name, ok, g, h.Granted())
			}
			for _, at := range []struct {
				later  time.Duration
				usable bool
			}{{0, true}, {24698*ms - 1, true}, {1, false}} {
				if time.Sleep(at.later); s.Usable(usual(), &g, s.Now()) != at.usable {
					t.Errorf("%v after it was granted it is usable: %v", h.Held(), !at.usable)
				}
			}
		})
	}
}

func TestProlong_AsksOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		store any
		slow  time.Duration
		want  []error
		not   []error
	}{
		{name: "granted", store: driver.Reply{State: driver.Granted}, slow: 29697 * ms},
		{name: "granted too late", store: driver.Reply{State: driver.Granted}, slow: 29698 * ms, want: []error{timing.ErrLate}},
		{name: "gone", store: driver.Reply{State: driver.Gone}, want: []error{ErrGone, ErrLost}},
		{name: "broken", store: driver.Reply{Broken: true}, want: []error{ErrBroken, ErrLost}},
		{name: "lost", store: errReset, want: []error{ErrUnknown, errReset}},
		{name: "not answered", store: errSilent, want: []error{ErrUnknown}},
		{name: "refused", store: driver.ErrUnavailable, want: []error{driver.ErrUnavailable}, not: []error{ErrUnknown}},
	} {
		store := answers(c.store)
		d := &script{renew: func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
			time.Sleep(c.slow)
			return store(ctx, n, nil)
		}}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			g, err := s.Prolong(t.Context(), usual(), driver.Ref{Key: "k", ID: "a"}, time.Minute)
			if (err == nil) != (len(c.want) == 0) || err == nil && !g.Origin.Round(0).Equal(d.start.Round(0)) {
				t.Errorf("%+v, %v", g, err)
			}
			matches(t, err, c.want, c.not)
			if asked := d.of("renew"); len(asked) != 1 || asked[0].limit != time.Minute {
				t.Errorf("asked %+v", asked)
			}
		})
	}
}
