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

// TestClose_GivesBack64AtATime, all within the longest release timeout, and closes the
// store once, behind all that is under way.
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
				if err := s.Hold(new(Hold), req, Grant{Origin: s.Now()}, users[i]); err != nil {
					t.Fatal(err)
				}
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

// TestClose_EachLeaseHasItsOwnTimeout, and one that has ended before is not given back.
func TestClose_EachLeaseHasItsOwnTimeout(t *testing.T) {
	d := new(script)
	stage(t, d, func(t *testing.T, s *Session) {
		var users []*slowly
		for i, limit := range []time.Duration{time.Second, 9 * time.Second, 3 * time.Second, 4 * time.Second} {
			u := &slowly{user{terms: usual()}}
			u.terms.ReleaseTimeout = limit
			req := usual().request()
			req.ID = fmt.Sprint(i)
			h := new(Hold)
			if err := s.Hold(h, req, Grant{Origin: s.Now()}, u); err != nil {
				t.Fatal(err)
			}
			if users = append(users, u); i == 3 {
				h.mu.Lock()
				h.ended = ErrGone // which nobody has been told of yet
				h.mu.Unlock()
			}
		}
		if ended, err := s.End(); !ended || err != nil {
			t.Errorf("it was closed before, or something is left: %v", err)
		}
		if took := time.Since(d.start); took != 9*time.Second {
			t.Errorf("ended after %v", took)
		}
		for i, want := range [][]time.Duration{{time.Second}, {9 * time.Second}, {3 * time.Second}, nil} {
			if back := users[i].told().back; !slices.Equal(back, want) {
				t.Errorf("lease %d is given back within %v, want %v", i, back, want)
			}
		}
		if len(d.of("close")) != 0 {
			t.Error("the store is closed")
		}
	})
}

// TestClose_TellsHowManyLeasesAreLeft, and of one of them why. One that was lost may be
// somebody else's by now.
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
				if err := s.Hold(new(Hold), req, Grant{Origin: s.Now()}, &user{terms: usual(), fails: err}); err != nil {
					t.Fatal(err)
				}
			}
			err := s.Close()
			if err == nil && c.want != "" || err != nil && err.Error() != c.want {
				t.Errorf("%v: closed by %v, want %q", c.fails, err, c.want)
			}
		})
	}
}

// TestSession_NothingBeginsAfterItsEnd.
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
			t.Error("what follows from a call that is under way does not begin")
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

// TestSleep_EndsEarlyWithItsContextOrTheSession.
func TestSleep_EndsEarlyWithItsContextOrTheSession(t *testing.T) {
	for _, c := range []struct {
		name       string
		ctx, close time.Duration // when they end
		slept      bool
		want       time.Duration
	}{
		{"nothing ends", time.Hour, time.Hour, true, time.Second},
		{"its context ends", 100 * ms, time.Hour, false, 100 * ms},
		{"the session ends", time.Hour, 100 * ms, false, 100 * ms},
		{"its context has ended", 0, time.Hour, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := new(script)
			stage(t, d, func(t *testing.T, s *Session) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
				defer cancel()
				timer := time.AfterFunc(c.close, func() { _, _ = s.End() })
				defer timer.Stop()
				if slept := s.sleep(ctx, time.Second); slept != c.slept || time.Since(d.start) != c.want {
					t.Errorf("slept: %v, for %v", slept, time.Since(d.start))
				}
			})
		})
	}
}

// TestHint_ReachesWhomItConcerns: the lease of its room and id that was broken, else the
// waiters of its id, or all of them where the session listens anew.
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
		t.Run(c.name, func(t *testing.T) {
			stage(t, new(script), func(t *testing.T, s *Session) {
				h := take(t, s, &user{terms: usual()})
				var waiters []*Waiter
				for _, id := range []string{"b", "b", "b", "c"} {
					req := usual().request()
					req.ID = id
					w, err := s.NewWaiter(usual(), req)
					if err != nil {
						t.Fatal(err)
					}
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
				// They go in any order, and the others are still found.
				left := map[*Waiter]bool{waiters[0]: true, waiters[1]: true, waiters[2]: true}
				for _, i := range []int{1, 2, 0} {
					waiters[i].Close()
					delete(left, waiters[i])
					var all []*Waiter
					all = s.concerned(all, &driver.Hint{Kind: driver.HintAsk, ID: "b"})
					for _, w := range all {
						if !left[w] {
							t.Error("one that is closed is found")
						}
					}
					if len(all) != len(left) {
						t.Errorf("%d are found of %d", len(all), len(left))
					}
				}
				waiters[3].Close()
				if len(s.waiters) != 0 {
					t.Errorf("%d waiters are left", len(s.waiters))
				}
			})
		})
	}
}

// TestEndLocal_EndsALeaseOfAnySessionOfTheProcess, of its room and id.
func TestEndLocal_EndsALeaseOfAnySessionOfTheProcess(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		other := New(new(script), usual().Log, nil)
		h := take(t, s, &user{terms: usual()})
		EndLocal("l", "a", ErrGone)
		EndLocal("k", "b", ErrGone)
		if !h.Live() || !errors.Is(s.NotHeld("k", "a"), driver.ErrMismatch) || s.NotHeld("k", "b") != nil {
			t.Errorf("it is over by %v", h.Cause())
		}
		EndLocal("k", "a", ErrGone)
		EndLocal("k", "a", ErrClosed)
		if !errors.Is(h.Cause(), ErrGone) || s.NotHeld("k", "a") != nil {
			t.Errorf("it is over by %v", h.Cause())
		}
		before := len(local.sessions)
		other.Close()
		if len(local.sessions) != before-1 {
			t.Error("a session that has ended is kept")
		}
	})
}
