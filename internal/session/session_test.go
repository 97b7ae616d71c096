package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// slowly is a user whose leases take all of their limit to be given back.
type slowly struct{ user }

func (u *slowly) GiveBack(cause error, limit time.Duration) error {
	defer time.Sleep(limit)
	return u.user.GiveBack(cause, limit)
}

// TestClose_GivesBack64AtATime, all within the longest release timeout, and closes the store
// once, after all calls under way.
func TestClose_GivesBack64AtATime(t *testing.T) {
	for _, c := range []struct {
		n    int
		want int // that have their release timeout
	}{{0, 0}, {1, 1}, {2, 2}, {64, 64}, {65, 64}, {200, 64}} {
		d := new(script)
		stage(t, d, func(t *testing.T, s *Session) {
			users := make([]*slowly, c.n)
			for i := range users {
				users[i] = &slowly{user{terms: usual()}}
				req := usual().request()
				req.ID = fmt.Sprint(i)
				must(t, s.Hold(new(Hold), req, Grant{Origin: s.Now()}, users[i]))
			}
			s.Background(func() { time.Sleep(time.Second) })
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			took, closed := time.Since(d.start), d.of("close")
			if want := 5 * time.Second; c.n > 0 && took != want || c.n == 0 && took != time.Second || len(closed) != 1 || closed[0].at != took {
				t.Errorf("%d leases: closed after %v, the store at %v", c.n, took, closed)
			}
			full := 0
			for _, u := range users {
				told := u.told()
				if len(told.ended) != 1 || !errors.Is(told.ended[0], ErrClosed) || len(told.back) != 1 || !told.at.Equal(d.start) {
					t.Fatalf("ended by %v at %v, given back within %v", told.ended, told.at, told.back)
				}
				switch told.back[0] {
				case 5 * time.Second:
					full++
				case 0:
				default:
					t.Errorf("given back within %v", told.back)
				}
			}
			if full != c.want {
				t.Errorf("%d of %d leases have their time", full, c.n)
			}
			err := s.Close()
			if ended, _ := s.End(); err != nil || ended || len(d.of("close")) != 1 {
				t.Errorf("closed again: %v", err)
			}
		})
	}
}

// TestClose_TellsHowManyLeasesAreLeft, and the error of one of them. A lost lease does not count:
// another client may hold the lock.
func TestClose_TellsHowManyLeasesAreLeft(t *testing.T) {
	for _, c := range []struct {
		fails []error
		want  string
	}{
		{[]error{nil, nil}, ""},
		{[]error{nil, ErrGone}, ""},
		{[]error{errReset}, `1 not given back, among them the lease of "k": connection reset`},
		{[]error{errReset, nil, errReset, ErrGone}, `2 not given back, among them the lease of "k": connection reset`},
	} {
		stage(t, new(script), func(t *testing.T, s *Session) {
			for i, err := range c.fails {
				req := usual().request()
				req.ID = fmt.Sprint(i)
				must(t, s.Hold(new(Hold), req, Grant{Origin: s.Now()}, &user{terms: usual(), fails: err}))
			}
			err := s.Close()
			if err == nil && c.want != "" || err != nil && err.Error() != c.want {
				t.Errorf("%v: closed by %v, want %q", c.fails, err, c.want)
			}
		})
	}
}

func TestSession_NothingBeginsAfterItsEnd(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		if err := s.Begin(); err != nil || s.IsClosing() {
			t.Errorf("it is closed: %v", err)
		}
		if !s.enterUnlessEnded() {
			t.Error("it has ended")
		}
		s.Leave()
		go func() { _, _ = s.End() }()
		synctest.Wait()
		if !s.IsClosing() || !s.enterUnlessEnded() {
			t.Error("the rest of a call that is under way does not begin")
		}
		s.Leave()
		s.Leave()
		synctest.Wait()
		if s.enterUnlessEnded() || !errors.Is(s.Begin(), ErrClosed) {
			t.Error("something begins after the end")
		}
		if _, err := s.NewWaiter(usual(), usual().request()); !errors.Is(err, ErrClosed) {
			t.Errorf("a wait: %v", err)
		}
		if err := s.Hold(new(Hold), usual().request(), Grant{Origin: s.Now()}, &user{terms: usual()}); !errors.Is(err, ErrClosed) {
			t.Errorf("a lease: %v", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy != 0 || len(s.holds) != 0 || len(s.waiters) != 0 {
			t.Errorf("%d under way, %d leases, %d waiters", s.busy, len(s.holds), len(s.waiters))
		}
	})
}

// TestHint_ReachesWhomItConcerns: the broken lease of its room and id, else the waiters of its
// id, or all waiters if the session has subscribed again.
func TestHint_ReachesWhomItConcerns(t *testing.T) {
	for _, c := range []struct {
		name    string
		hint    driver.Hint
		broken  bool
		reached []int // of the waiters
		counts  uint64
	}{
		{"a break", driver.Hint{Kind: driver.HintBroken, Key: "k", ID: "a"}, true, nil, 0},
		{"a break elsewhere", driver.Hint{Kind: driver.HintBroken, Key: "l", ID: "a"}, false, nil, 0},
		{"a break of a waiter", driver.Hint{Kind: driver.HintBroken, Key: "k", ID: "b"}, false, []int{0, 1, 2}, 0},
		{"a break of a waiter elsewhere", driver.Hint{Kind: driver.HintBroken, Key: "l", ID: "b"}, false, nil, 0},
		{"a turn", driver.Hint{Kind: driver.HintAsk, Key: "k", ID: "b"}, false, []int{0, 1, 2}, 1},
		{"a turn of nobody's", driver.Hint{Kind: driver.HintAsk, Key: "k", ID: "x"}, false, nil, 1},
		{"a resync", driver.Hint{Kind: driver.HintResync}, false, []int{0, 1, 2, 3}, 1},
	} {
		play(t, c.name, new(script), func(t *testing.T, s *Session) {
			h := take(t, s, &user{terms: usual()})
			var waiters []*Waiter
			for _, id := range []string{"b", "b", "b", "c"} {
				req := usual().request()
				req.ID = id
				w, err := s.NewWaiter(usual(), req)
				must(t, err)
				w.aim() // it has asked
				waiters = append(waiters, w)
			}
			before := s.hints.Load()
			s.hint(c.hint)
			var reached []int
			for i, w := range waiters {
				if w.early != nil {
					reached = append(reached, i)
				}
			}
			if !slices.Equal(reached, c.reached) || errors.Is(h.Cause(), ErrBroken) != c.broken || s.hints.Load()-before != c.counts {
				t.Errorf("it reaches %v, the lease is over by %v, %d hints", reached, h.Cause(), s.hints.Load()-before)
			}
			// They leave in any order, and the remaining waiters are still found.
			left := slices.Clone(waiters[:3])
			for _, i := range []int{1, 1, 0} {
				left[i].Close()
				left = slices.Delete(left, i, i+1)
				all := s.concerned(nil, &driver.Hint{Kind: driver.HintAsk, ID: "b"})
				if len(all) != len(left) || slices.ContainsFunc(all, func(w *Waiter) bool { return !slices.Contains(left, w) }) {
					t.Errorf("%d are found of %d", len(all), len(left))
				}
			}
			waiters[3].Close()
			if len(s.waiters) != 0 {
				t.Errorf("%d waiters are left", len(s.waiters))
			}
		})
	}
}

func TestTerms_SayHowLongAStoreIsWaitedFor(t *testing.T) {
	since := time.Now()
	now := since.Add(3 * time.Second)
	for _, c := range []struct {
		outage, try    time.Duration
		wantOutage     time.Duration
		wantTry        time.Duration
		tiredAtTheLast bool // with some time left
	}{
		{30 * time.Second, 0, 27 * time.Second, 7 * time.Second, false},
		{5 * time.Second, 0, 2 * time.Second, 2 * time.Second, false},
		{30 * time.Second, 20 * time.Second, 27 * time.Second, 17 * time.Second, false},
		{0, 0, 7 * time.Second, 7 * time.Second, true},
		{-1, 0, 100 * 365 * 24 * time.Hour, 7 * time.Second, false},
		{1, 0, 1 - 3*time.Second, 1 - 3*time.Second, false},
	} {
		terms := &Terms{MaxOutage: c.outage, MaxTry: c.try}
		if o, try := terms.outage(since, now), terms.tryOutage(since, now); o != c.wantOutage || try != c.wantTry {
			t.Errorf("%+v: %v and %v", c, o, try)
		}
		if terms.givesUp(1) != c.tiredAtTheLast || !terms.givesUp(0) || !terms.givesUp(-1) {
			t.Errorf("%+v: tired with time left: %v, without: %v", c, terms.givesUp(1), terms.givesUp(0))
		}
	}
}

// prompt is a store that bounds its calls.
type prompt struct {
	script
	after time.Duration
}

func (p *prompt) CallTimeout() time.Duration { return p.after }

// TestBound_EndsCallsInTime: by a context of its own, by a context whose deadline only the driver
// reads, or by no context if the driver or the caller's context ends as early.
func TestBound_EndsCallsInTime(t *testing.T) {
	const try = 4 * time.Second
	for _, c := range []struct {
		name   string
		drv    driver.Driver
		parent time.Duration // left of the caller's context; 0 is without end
		limit  time.Duration // of the call; 0 for no limit
		same   bool          // the context is the caller's
		told   bool          // only the deadline is set, and a driver reads it
	}{
		{name: "a driver that does not look", drv: new(script), limit: try},
		{name: "under a later context", drv: new(script), parent: try + 1, limit: try},
		{name: "under a context that is as early", drv: new(script), parent: try, limit: try, same: true},
		{name: "under an earlier context", drv: new(script), parent: time.Second, limit: time.Second, same: true},
		{name: "a driver that looks", drv: new(prompt), limit: try, told: true},
		{name: "a driver that looks, under an earlier context", drv: new(prompt), parent: time.Second, limit: time.Second, same: true},
		{name: "a driver that ends in time", drv: &prompt{after: 5 * time.Second}, same: true},
		{name: "a driver that ends too late", drv: &prompt{after: 5*time.Second + 1}, limit: try, told: true},
		{name: "a driver that ends at once", drv: &prompt{after: 1}, same: true},
	} {
		play(t, c.name, new(script), func(t *testing.T, s *Session) {
			s.punctual = punctualityOf(c.drv)
			parent, cancel := t.Context(), func() {}
			if c.parent > 0 {
				parent, cancel = context.WithTimeout(parent, c.parent)
			}
			defer cancel()
			ctx, end := s.bound(parent, try)
			defer end()
			deadline, ok := ctx.Deadline()
			if ok != (c.limit > 0) || ok && time.Until(deadline) != c.limit || (ctx == parent) != c.same {
				t.Errorf("it ends after %v (%v), and is the caller's: %v", time.Until(deadline), ok, ctx == parent)
			}
			if ok {
				time.Sleep(c.limit + 1)
				if (ctx.Err() == nil) != c.told {
					t.Errorf("it has ended: %v", ctx.Err())
				}
			}
		})
	}
}
