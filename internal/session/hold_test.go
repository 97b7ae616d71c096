package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestHold_BeginsByItsTerms: its deadline, its first renewal, how much earlier it may be renewed
// together with other leases, and its latest end.
func TestHold_BeginsByItsTerms(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*Terms)
		window   time.Duration
		age      time.Duration // of the grant
		deadline time.Duration // after the grant
		renewed  time.Duration
		slack    time.Duration
		ends     time.Duration // after the beginning, while the store answers; 0 is not within an hour
	}{
		{name: "as usual", deadline: 29698 * ms, renewed: 10 * time.Second, slack: time.Second},
		{name: "HR_C3 answered a second after it was sent", age: time.Second, deadline: 29698 * ms, renewed: 9 * time.Second, slack: time.Second},
		{name: "short", change: func(t *Terms) { t.TTL = 3 * time.Second }, deadline: 2968 * ms, renewed: time.Second, slack: 100 * ms},
		{name: "long", change: func(t *Terms) { t.TTL = 5 * time.Minute }, deadline: 296998 * ms, renewed: 100 * time.Second, slack: time.Second},
		{name: "handed over", window: time.Second, deadline: 988 * ms, renewed: 0, slack: time.Second},
		{name: "handed over for the shortest time", window: 10 * ms, deadline: 7900 * time.Microsecond, renewed: 0, slack: time.Second},
		{name: "without renewal", change: func(t *Terms) { t.NoRenewal = true }, deadline: 29698 * ms, renewed: -1, slack: time.Second, ends: 29698 * ms},
		{name: "handed over, without renewal", change: func(t *Terms) { t.NoRenewal = true }, window: time.Second, deadline: 988 * ms, renewed: 0, slack: time.Second, ends: 29698 * ms},
		{name: "with a maximum", change: func(t *Terms) { t.MaxHold = 15 * time.Second }, deadline: 29698 * ms, renewed: 10 * time.Second, slack: time.Second, ends: 49698 * ms},
		{name: "with the least maximum", change: func(t *Terms) { t.MaxHold = 1 }, deadline: 29698 * ms, renewed: 10 * time.Second, slack: time.Second, ends: 39698 * ms},
	} {
		d := &script{renew: func(_ context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
			if n == 1 {
				time.Sleep(ms) // the lease is first checked before any answer
			}
			return driver.Reply{State: driver.Granted}, nil
		}}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			if c.change != nil {
				c.change(terms)
			}
			h, req := new(Hold), terms.request()
			u := &user{terms: terms, hold: h}
			origin := s.Now()
			time.Sleep(c.age)
			must(t, s.Hold(h, req, Grant{Token: 7, Origin: origin, Window: c.window}, u))
			if err := s.Hold(new(Hold), req, Grant{Origin: origin}, &user{terms: terms}); !errors.Is(err, driver.ErrMismatch) {
				t.Errorf("it was held twice: %v", err)
			}
			if got := h.Deadline().Sub(origin); got != c.deadline || h.Slack() != c.slack {
				t.Errorf("it lasts %v, its slack is %v, want %v and %v", got, h.Slack(), c.deadline, c.slack)
			}
			if handed := u.told().handed; len(handed) != 1 || handed[0].IsZero() != (c.window == 0) || h.Token() != 7 || h.TTL() != terms.TTL || h.Failing() {
				t.Errorf("begins with %v, token %d, TTL %v", handed, h.Token(), h.TTL())
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if c.renewed < 0 {
				if n := len(d.of("renew")); n > 0 {
					t.Errorf("renewed %d times", n)
				}
			} else if got := d.of("renew")[0]; got.at != c.age+c.renewed || got.ref.TTL != terms.TTL {
				t.Errorf("renewed after %v by %+v, want %v", got.at, got.ref, c.age+c.renewed)
			}
			told := u.told()
			if (len(told.ended) > 0) != (c.ends > 0) || c.ends > 0 && told.at.Sub(d.start) != c.ends {
				t.Errorf("ended %d times, after %v, want %v", len(told.ended), told.at.Sub(d.start), c.ends)
			}
			if terms.MaxHold > 0 && (told.cuts != 1 || !errors.Is(told.ended[0], errOverrun) || len(told.back) > 0) {
				t.Errorf("reached its maximum %d times, ended with %v, given back within %v", told.cuts, told.ended[0], told.back)
			}
			alarms := locked(&s.expiry.mu, func() int { return len(s.expiry.heap.entries) })
			if (s.Held() > 0) != (c.ends == 0) || alarms != s.Held() || s.keeper.Len() != s.Held() {
				t.Errorf("%d leases, %d alarms, %d renewals are left", s.Held(), alarms, s.keeper.Len())
			}
		})
	}
}

// TestHold_RetriesUntilItsDeadline: each failed renewal is followed by another after the pause of
// its kind, for half of the time left. The lease ends at its deadline with the last failure as
// the cause, or when its attempts are used up, or at once if it is not in the store.
func TestHold_RetriesUntilItsDeadline(t *testing.T) {
	for _, c := range []struct {
		name     string
		fails    error
		attempts int // that may fail
		asked    int // at least, or exactly where they are counted
		once     bool
		want     []error
	}{
		{name: "loses", fails: errReset, asked: 15, want: []error{ErrLost, ErrExpired, errReset}},
		{name: "refuses", fails: driver.ErrUnavailable, asked: 25, want: []error{ErrLost, ErrExpired, driver.ErrUnavailable}},
		{name: "refuses, with permission to ask again", fails: driver.ErrPermanent, asked: 15, want: []error{ErrLost, ErrExpired, driver.ErrPermanent}},
		{name: "loses, which is counted", fails: errReset, attempts: 3, asked: 3, want: []error{ErrLost, errReset}},
		{name: "loses, once", fails: errReset, attempts: 1, asked: 1, want: []error{ErrLost, errReset}},
		{name: "refuses what it is asked", fails: driver.ErrInvalid, asked: 25, want: []error{ErrLost, ErrExpired, driver.ErrInvalid}},
		{name: "does not serve what it is asked", fails: errors.ErrUnsupported, asked: 25, want: []error{ErrLost, ErrExpired, errors.ErrUnsupported}},
		{name: "refuses what it is asked, which is counted", fails: driver.ErrInvalid, attempts: 2, asked: 2, want: []error{ErrLost, driver.ErrInvalid}},
		{name: "has something else there", fails: driver.ErrMismatch, asked: 1, once: true, want: []error{ErrLost, driver.ErrMismatch}},
		{name: "is closed", fails: driver.ErrClosed, asked: 1, once: true, want: []error{ErrLost, driver.ErrClosed}},
	} {
		d := &script{renew: func(context.Context, int, *driver.Ref) (driver.Reply, error) { return driver.Reply{}, c.fails }}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.MaxAttempts = c.attempts
			u := &user{terms: terms}
			h := take(t, s, u)
			const deadline = 29698 * ms
			time.Sleep(9999 * ms)
			if h.Failing() {
				t.Error("it fails before it was renewed")
			}
			time.Sleep(ms)
			synctest.Wait()
			if h.Failing() != (c.asked > 0) {
				t.Error("it does not fail")
			}
			time.Sleep(time.Minute)
			at, n := 10*time.Second, 0
			for _, q := range d.of("renew") {
				if q.at != at || q.limit != timing.RenewalTry(deadline-at) || q.ref.TTL != terms.TTL {
					t.Errorf("renewed at %v for %v, want %v for %v", q.at, q.limit, at, timing.RenewalTry(deadline-at))
				}
				n++
				at += timing.RenewIn(terms.TTL, deadline-q.at, n, timing.Definite(c.fails), c.attempts > 0)
			}
			told := u.told()
			if n < c.asked || (c.attempts > 0 || c.once) && n != c.asked || len(told.renewals) != n {
				t.Errorf("%d renewals, %d reported, want %d", n, len(told.renewals), c.asked)
			}
			if len(told.ended) != 1 {
				t.Fatalf("ended %d times", len(told.ended))
			}
			matches(t, told.ended[0], c.want, nil)
			want := d.times("renew")[n-1]
			if errors.Is(told.ended[0], ErrExpired) {
				want = deadline
			}
			if got := told.at.Sub(d.start); got != want {
				t.Errorf("ended after %v, want %v", got, want)
			}
			if h.Live() || h.Over() == nil || !errors.Is(h.Over(), c.fails) {
				t.Errorf("it is over by %v", h.Over())
			}
		})
	}
}

// TestHold_OneRenewalThatSucceedsForgetsTheFailures, so that only consecutive failures count, and
// only the timer of a maximum is kept.
func TestHold_OneRenewalThatSucceedsForgetsTheFailures(t *testing.T) {
	for _, most := range []time.Duration{0, 2 * time.Hour} {
		d := &script{renew: func(_ context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
			if n%3 != 0 {
				return driver.Reply{}, errReset
			}
			return driver.Reply{State: driver.Granted}, nil
		}}
		stage(t, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.MaxAttempts, terms.MaxHold = 3, most
			u := &user{terms: terms}
			h := take(t, s, u)
			time.Sleep(time.Hour)
			synctest.Wait()
			if ended := u.told().ended; len(ended) > 0 {
				t.Fatalf("ended by %v", ended)
			}
			for h.Failing() {
				time.Sleep(time.Second)
			}
			kept := locked(&h.mu, func() bool { return h.rareState != nil })
			if !h.Live() || h.Over() != nil || h.Cause() != nil || kept != (most > 0) {
				t.Errorf("over by %v, something is kept: %v", h.Over(), kept)
			}
			time.Sleep(time.Hour + time.Minute)
			if h.Live() != (most == 0) {
				t.Errorf("after two hours it is live: %v", h.Live())
			}
		})
	}
}

// TestHold_ADeadlineNeverMovesBack: renewals may be answered in another order than they
// were sent, and count from when they were sent.
func TestHold_ADeadlineNeverMovesBack(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		terms := usual()
		terms.NoRenewal = true
		u := &user{terms: terms}
		h := take(t, s, u)
		begin := s.Now()
		renewed := func(sent time.Duration) time.Duration {
			h.asked = terms.TTL
			h.Answer(begin.Add(sent), driver.Reply{State: driver.Granted}, nil)
			return h.Deadline().Sub(begin)
		}
		time.Sleep(20 * time.Second)
		for _, step := range []struct{ sent, deadline time.Duration }{
			{10 * time.Second, 39698 * ms}, {5 * time.Second, 39698 * ms}, {20 * time.Second, 49698 * ms},
		} {
			if got := renewed(step.sent); got != step.deadline {
				t.Errorf("after a renewal that was sent at %v it lasts until %v, want %v", step.sent, got, step.deadline)
			}
		}
		time.Sleep(29698*ms - 1)
		if !h.Live() {
			t.Error("it ended too early")
		}
		time.Sleep(time.Nanosecond)
		if h.Live() || !errors.Is(h.Over(), ErrExpired) {
			t.Errorf("it is live at its deadline: %v", h.Over())
		}
		if next := h.Answer(s.Now(), driver.Reply{State: driver.Granted}, nil); !next.IsZero() || h.Live() {
			t.Error("an answer revived it")
		}
	})
}

// TestHold_ExtendTellsTheOutcome of the first renewal that was sent after the call and succeeded,
// or of the end.
func TestHold_ExtendTellsTheOutcome(t *testing.T) {
	for _, c := range []struct {
		name   string
		renew  []any
		slow   time.Duration // the first answer
		second time.Duration // when another extension is asked for
		told   []time.Duration
		lost   bool
		asked  []time.Duration
		ttl    time.Duration
	}{
		{name: "granted", renew: []any{driver.Reply{State: driver.Granted}}, second: time.Second, told: []time.Duration{0, time.Second}, asked: []time.Duration{0, time.Second}, ttl: time.Minute},
		{name: "in flight", renew: []any{driver.Reply{State: driver.Granted}}, slow: 2 * time.Second, second: time.Second, told: []time.Duration{2 * time.Second, 2 * time.Second}, asked: []time.Duration{0, 2 * time.Second}, ttl: time.Minute},
		{name: "failed at first", renew: []any{errReset, driver.Reply{State: driver.Granted}}, second: time.Second, told: []time.Duration{100 * ms, time.Second}, asked: []time.Duration{0, 100 * ms, time.Second}, ttl: time.Minute},
		{name: "gone", renew: []any{driver.Reply{State: driver.Gone}}, slow: 2 * time.Second, second: time.Second, told: []time.Duration{2 * time.Second, 2 * time.Second}, asked: []time.Duration{0}, lost: true},
	} {
		answer := answersTo(c.renew...)
		d := &script{renew: func(ctx context.Context, n int, ref *driver.Ref) (driver.Reply, error) {
			if n == 1 {
				time.Sleep(c.slow)
			}
			return answer(ctx, n, ref)
		}}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.NoRenewal = true
			u := &user{terms: terms}
			h := take(t, s, u)
			told := make([]atomic.Int64, 2)
			extend := func(i int, ttl time.Duration) {
				done, err := h.Extend(ttl)
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					if err := <-done; (err != nil) != c.lost || c.lost && !errors.Is(err, ErrNotHeld) {
						t.Errorf("told %v", err)
					}
					told[i].Store(int64(time.Since(d.start)))
				}()
			}
			extend(0, time.Minute)
			time.Sleep(c.second)
			extend(1, 10*time.Second)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			heard := []time.Duration{time.Duration(told[0].Load()), time.Duration(told[1].Load())}
			if !slices.Equal(heard, c.told) || !slices.Equal(d.times("renew"), c.asked) {
				t.Errorf("reported at %v, asked at %v, want %v and %v", heard, d.times("renew"), c.told, c.asked)
			}
			if c.lost {
				if _, err := h.Extend(time.Minute); !errors.Is(err, ErrNotHeld) {
					t.Errorf("extended: %v", err)
				}
				return
			}
			if last := c.asked[len(c.asked)-1]; h.TTL() != c.ttl || h.Deadline().Sub(d.start) != last+timing.Life(c.ttl, terms.Drift) {
				t.Errorf("it lasts %v, until %v", h.TTL(), h.Deadline().Sub(d.start))
			}
		})
	}
}

// TestHold_P3_AnExtensionThatIsRefusedChangesNothing: the caller gets the error, and the lease is
// renewed for the longest time that the store grants. The store grants 2 min at most.
func TestHold_P3_AnExtensionThatIsRefusedChangesNothing(t *testing.T) {
	const most, deadline = 2 * time.Minute, 29698 * ms
	type asked struct{ at, ttl time.Duration }
	at := func(s, ttl int) asked { return asked{time.Duration(s) * time.Second, time.Duration(ttl) * time.Second} }
	for _, c := range []struct {
		name    string
		change  func(*Terms)
		window  time.Duration
		most    time.Duration   // that the store grants, 2 min if it is 0
		failing int             // renewals before the first answer
		fails   error           // the failure; nil means a lost reply
		slow    time.Duration   // each answer
		extend  []time.Duration // at 5 s
		during  time.Duration   // another, while the answer is awaited
		refused int             // of them
		unknown int             // of the refused: an earlier try may have been done
		asked   []asked         // from 5 s to 20 s
		ttl     time.Duration
		ends    time.Duration // 0 is not within 15 min
	}{
		{name: "one", extend: []time.Duration{time.Hour}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600), at(5, 30), at(15, 30)}},
		{name: "next to a shorter one", extend: []time.Duration{10 * time.Second, time.Hour, time.Minute, 2 * time.Hour}, refused: 2, ttl: time.Minute,
			asked: []asked{at(5, 7200), at(5, 3600), at(5, 60)}},
		{name: "after a failure", failing: 1, extend: []time.Duration{time.Hour, time.Minute}, refused: 1, unknown: 1, ttl: time.Minute,
			asked: []asked{at(5, 3600), {5100 * ms, time.Hour}, {5100 * ms, time.Minute}}},
		{name: "after the store could not be reached", failing: 1, fails: driver.ErrUnavailable, extend: []time.Duration{time.Hour}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600), {5100 * ms, time.Hour}, {5100 * ms, 30 * time.Second}, {15100 * ms, 30 * time.Second}}},
		{name: "after a failure, with a new one", failing: 1, slow: 50 * ms, extend: []time.Duration{10 * time.Minute}, during: time.Hour, refused: 2, unknown: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 600), {5100 * ms, time.Hour}, {5150 * ms, 10 * time.Minute}, {5200 * ms, 30 * time.Second}, {15200 * ms, 30 * time.Second}}},
		{name: "where attempts are counted", change: func(t *Terms) { t.MaxAttempts = 1 }, extend: []time.Duration{time.Hour}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600), at(5, 30), at(15, 30)}},
		{name: "of a lease that is not renewed", change: func(t *Terms) { t.NoRenewal = true }, extend: []time.Duration{time.Hour}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600)}, ends: deadline},
		{name: "of a lease that is not renewed, after a failure", change: func(t *Terms) { t.NoRenewal = true }, failing: 1, extend: []time.Duration{time.Hour}, refused: 1, unknown: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600), {5100 * ms, time.Hour}}, ends: deadline},
		{name: "of a lease that is not renewed, next to a shorter one", change: func(t *Terms) { t.NoRenewal = true }, extend: []time.Duration{time.Hour, time.Minute}, refused: 1, ttl: time.Minute,
			asked: []asked{at(5, 3600), at(5, 60)}, ends: 5*time.Second + 59398*ms},
		{name: "of a lease that was confirmed and is not renewed", change: func(t *Terms) { t.NoRenewal = true }, window: 10 * time.Second, extend: []time.Duration{time.Hour}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600)}, ends: deadline},
		{name: "of a lease that is not confirmed, nor renewed", change: func(t *Terms) { t.NoRenewal = true }, window: 10 * time.Second, failing: 7, extend: []time.Duration{time.Hour}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 3600), at(5, 30)}, ends: 5*time.Second + deadline},
		{name: "during another request", slow: 500 * ms, extend: []time.Duration{time.Hour}, during: time.Minute, refused: 1, ttl: time.Minute,
			asked: []asked{at(5, 3600), {5500 * ms, time.Minute}}},
		{name: "where the lease itself is refused", most: time.Second, extend: []time.Duration{10 * time.Second, time.Minute}, refused: 2, ttl: 30 * time.Second,
			asked: []asked{at(5, 60), at(5, 30), {5100 * ms, 30 * time.Second}, {5300 * ms, 30 * time.Second}}, ends: deadline},
		{name: "for no longer than before, of a lease that is not renewed", change: func(t *Terms) { t.NoRenewal = true }, most: time.Second, extend: []time.Duration{30 * time.Second}, refused: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 30)}, ends: deadline},
		{name: "for less than before, of a lease that is not renewed, after a failure", change: func(t *Terms) { t.NoRenewal = true }, most: time.Second, failing: 1, extend: []time.Duration{10 * time.Second}, refused: 1, unknown: 1, ttl: 30 * time.Second,
			asked: []asked{at(5, 30), {5100 * ms, 30 * time.Second}}, ends: deadline},
		{name: "for less than before, of a lease that is not renewed, where attempts are counted, during another request", change: func(t *Terms) { t.NoRenewal, t.MaxAttempts = true, 1 }, most: time.Second, slow: 500 * ms, extend: []time.Duration{10 * time.Second}, during: 30 * time.Second, refused: 2, ttl: 30 * time.Second,
			asked: []asked{at(5, 30), {5500 * ms, 30 * time.Second}}, ends: deadline},
	} {
		d := &script{renew: func(_ context.Context, n int, ref *driver.Ref) (driver.Reply, error) {
			time.Sleep(c.slow)
			switch {
			case n <= c.failing:
				return driver.Reply{}, cmp.Or(c.fails, errReset)
			case ref.TTL > cmp.Or(c.most, most):
				return driver.Reply{}, fmt.Errorf("longer than %v: %w", most, errors.ErrUnsupported)
			}
			return driver.Reply{State: driver.Granted}, nil
		}}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			if c.change != nil {
				c.change(terms)
			}
			u, h := &user{terms: terms}, new(Hold)
			must(t, s.Hold(h, terms.request(), Grant{Token: 7, Origin: s.Now(), Window: c.window}, u))
			time.Sleep(5 * time.Second)
			var told []<-chan error
			extend := func(ttl time.Duration) {
				done, err := h.Extend(ttl)
				must(t, err)
				told = append(told, done)
			}
			for _, ttl := range c.extend {
				extend(ttl)
			}
			if c.during > 0 {
				time.Sleep(100 * ms)
				extend(c.during)
				c.extend = append(c.extend, c.during)
			}
			time.Sleep(time.Second)
			refused, unknown := 0, 0
			for i, done := range told {
				select {
				case err := <-done:
					if errors.Is(err, ErrUnknown) {
						unknown++
					}
					if errors.Is(err, errors.ErrUnsupported) {
						refused++
					} else if err != nil || c.extend[i] > c.ttl {
						t.Errorf("the extension to %v returned %v", c.extend[i], err)
					}
				default:
					t.Errorf("the extension to %v returned no result", c.extend[i])
				}
			}
			fails := c.most > 0 && !terms.NoRenewal // it is renewed, and that is refused until its end
			if refused != c.refused || unknown != c.unknown || h.TTL() != c.ttl || !h.Live() || h.Failing() != fails {
				t.Errorf("%d were refused, %d of them may have been done, it is renewed for %v, is live: %v, fails: %v", refused, unknown, h.TTL(), h.Live(), h.Failing())
			}
			time.Sleep(14 * time.Second)
			synctest.Wait()
			var got []asked
			for _, q := range d.of("renew") {
				if q.at >= 5*time.Second {
					got = append(got, asked{q.at, q.ref.TTL})
				}
			}
			if fails {
				got = got[:min(len(got), len(c.asked))]
			}
			if !slices.Equal(got, c.asked) {
				t.Errorf("asked %v, want %v", got, c.asked)
			}
			time.Sleep(15 * time.Minute)
			synctest.Wait()
			var ends time.Duration
			if told := u.told(); len(told.ended) > 0 {
				ends = told.at.Sub(d.start)
			}
			if ends != c.ends {
				t.Errorf("ended after %v, want %v", ends, c.ends)
			}
		})
	}
}

// TestHold_CountsFailuresAnewAfterARefusedExtension: a refused extension resets the count of
// failures, also if there is no renewal before the next extension.
func TestHold_CountsFailuresAnewAfterARefusedExtension(t *testing.T) {
	d := &script{renew: func(_ context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
		switch n {
		case 1:
			return driver.Reply{}, errors.ErrUnsupported
		case 2:
			return driver.Reply{}, errReset
		}
		return driver.Reply{State: driver.Granted}, nil
	}}
	stage(t, d, func(t *testing.T, s *Session) {
		terms := usual()
		terms.NoRenewal, terms.MaxAttempts = true, 2
		h := new(Hold)
		must(t, s.Hold(h, terms.request(), Grant{Token: 7, Origin: s.Now()}, &user{terms: terms}))
		for _, c := range []struct {
			ttl  time.Duration
			want error
		}{{time.Hour, errors.ErrUnsupported}, {time.Minute, nil}} {
			done, err := h.Extend(c.ttl)
			must(t, err)
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("the extension to %v returned %v, want %v", c.ttl, err, c.want)
			}
		}
		if !h.Live() || h.TTL() != time.Minute {
			t.Errorf("live: %v, renewed for %v; want true and a minute", h.Live(), h.TTL())
		}
	})
}

// TestHold_AReleaseGoesOnForWhatAnExtensionMayHaveTaken: an unanswered extension counts from its
// request, until the store has renewed the lease for at least as long. The extension is requested
// at once, the lease is released later, and the release is never answered.
func TestHold_AReleaseGoesOnForWhatAnExtensionMayHaveTaken(t *testing.T) {
	granted := driver.Reply{State: driver.Granted}
	for _, c := range []struct {
		name     string
		answers  []any // to the renewals; the last goes on
		released time.Duration
		until    time.Duration
		once     bool // the lease is not renewed otherwise
	}{
		{"is lost", []any{errReset}, time.Second, time.Hour, false},
		{"is under way", []any{nil}, time.Second, time.Hour + time.Second, false},
		{"is lost, then refused", []any{errReset, driver.ErrInvalid, granted}, time.Second, time.Hour, false},
		{"is lost, then refused, a while ago", []any{errReset, driver.ErrInvalid, granted}, 30 * time.Minute, time.Hour, false},
		{"is lost, then refused, long ago", []any{errReset, driver.ErrInvalid, granted}, 2 * time.Hour, 2*time.Hour + 30*time.Second, false},
		{"is lost, then refused, as all that follows", []any{errReset, driver.ErrInvalid}, time.Second, time.Hour, false},
		{"is refused", []any{driver.ErrInvalid}, time.Second, 31 * time.Second, false},
		{"is refused, which is all that was asked for", []any{driver.ErrInvalid}, time.Second, 31 * time.Second, true},
		{"cannot be sent, then is refused", []any{driver.ErrUnavailable, driver.ErrInvalid}, time.Second, 31 * time.Second, false},
	} {
		d := &script{
			renew:   answersTo(c.answers...),
			release: func(context.Context, int, *driver.Ref) (driver.Reply, error) { return driver.Reply{}, errReset },
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.NoRenewal = c.once
			h := take(t, s, &user{terms: terms})
			if _, err := h.Extend(time.Hour); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.released)
			_, _, _ = h.Leave(true, errors.New("released"))
			h.Left(errors.New("released"))
			if err := h.Release(t.Context(), false, time.Second); !errors.Is(err, ErrUnknown) {
				t.Errorf("released: %v", err)
			}
			time.Sleep(4 * time.Hour)
			all := d.times("release")
			if last := all[len(all)-1]; last < c.until-5*time.Second || last > c.until+5*time.Second {
				t.Errorf("released until %v, want %v", last, c.until)
			}
		})
	}
}

// TestHold_ForgetsWhatAnExtensionMayHaveTaken when the store has renewed the lease for at least
// as long, or when that time has passed.
func TestHold_ForgetsWhatAnExtensionMayHaveTaken(t *testing.T) {
	granted := driver.Reply{State: driver.Granted}
	for _, c := range []struct {
		name    string
		answers []any
		longer  time.Duration // another extension, a minute later
		after   time.Duration
		kept    bool
	}{
		{"renewed", []any{errReset, granted}, 0, time.Second, false},
		{"refused", []any{errReset, driver.ErrInvalid, granted}, 0, 59 * time.Minute, true},
		{"refused, until it is over", []any{errReset, driver.ErrInvalid, granted}, 0, time.Hour, false},
		{"refused, then renewed for less", []any{errReset, driver.ErrInvalid, granted}, 58 * time.Minute, 2 * time.Minute, true},
		{"refused, then renewed for as long as is left", []any{errReset, driver.ErrInvalid, granted}, 59 * time.Minute, 2 * time.Minute, false},
	} {
		play(t, c.name, &script{renew: answersTo(c.answers...)}, func(t *testing.T, s *Session) {
			h := take(t, s, &user{terms: usual()})
			extend := func(ttl time.Duration) {
				if _, err := h.Extend(ttl); err != nil {
					t.Fatal(err)
				}
			}
			began := s.Now()
			extend(time.Hour)
			if c.longer > 0 {
				time.Sleep(time.Minute)
				extend(c.longer)
			}
			time.Sleep(began.Add(c.after).Sub(s.Now()))
			synctest.Wait()
			if kept := locked(&h.mu, func() bool { return h.rareState != nil }); kept != c.kept || !h.Live() {
				t.Errorf("it is kept: %v, is live: %v", kept, h.Live())
			}
		})
	}
}

// TestDowngrade_IsAsGoodAsItsAnswer: the weaker side counts until it is certain that the store
// did not downgrade.
func TestDowngrade_IsAsGoodAsItsAnswer(t *testing.T) {
	granted := driver.Reply{State: driver.Granted, Uncontended: true}
	for _, c := range []struct {
		name     string
		store    []any // of downgrades, one after the other
		slow     time.Duration
		mode     driver.Mode
		lowering bool // some request may still lower it
		want     [][]error
		deadline time.Duration
		lost     error
	}{
		{name: "granted", store: []any{granted}, mode: driver.Shared, want: [][]error{nil}, deadline: 34698 * ms},
		{name: "refused", store: []any{driver.ErrUnavailable}, mode: driver.Exclusive, want: [][]error{{driver.ErrUnavailable}}, deadline: 29698 * ms},
		{name: "lost", store: []any{errReset}, mode: driver.Shared, lowering: true, want: [][]error{{ErrUnknown, errReset}}, deadline: 29698 * ms},
		{name: "lost, then refused", store: []any{errReset, driver.ErrUnavailable}, mode: driver.Shared, lowering: true, want: [][]error{{ErrUnknown}, {ErrUnknown}}, deadline: 29698 * ms},
		{name: "lost, then granted", store: []any{errReset, granted}, mode: driver.Shared, want: [][]error{{ErrUnknown}, nil}, deadline: 34698 * ms},
		{name: "granted, then refused", store: []any{granted, driver.ErrUnavailable}, mode: driver.Shared, want: [][]error{nil, {driver.ErrUnavailable}}, deadline: 34698 * ms},
		{name: "gone", store: []any{driver.Reply{}}, mode: driver.Shared, want: [][]error{{ErrNotHeld, ErrGone}}, deadline: 29698 * ms, lost: ErrGone},
		{name: "broken", store: []any{driver.Reply{Broken: true}}, mode: driver.Shared, want: [][]error{{ErrNotHeld, ErrBroken}}, deadline: 29698 * ms, lost: ErrBroken},
		{name: "granted too late", store: []any{granted}, slow: 24698 * ms, mode: driver.Shared, want: [][]error{{ErrNotHeld, ErrExpired}}, deadline: 29698 * ms, lost: ErrExpired},
		{name: "refused too late", store: []any{driver.ErrUnavailable}, slow: 24698 * ms, mode: driver.Exclusive, want: [][]error{{driver.ErrUnavailable}}, deadline: 29698 * ms, lost: ErrExpired},
	} {
		store := answers(c.store...)
		d := &script{acquire: func(ctx context.Context, n int, req *driver.Request) (driver.Reply, error) {
			if n == 1 {
				return driver.Reply{State: driver.Granted, Token: 7}, nil
			}
			if !req.Downgrade || req.ID != "a" || req.TTL != 30*time.Second || req.Mode != driver.Shared {
				t.Errorf("asked by %+v", req)
			}
			time.Sleep(c.slow)
			return store(ctx, n-1, nil)
		}}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.NoRenewal = true
			h := take(t, s, &user{terms: terms})
			time.Sleep(5 * time.Second)
			for _, want := range c.want {
				if err := h.CanLower(); err != nil && !h.reader {
					t.Errorf("it cannot be lowered: %v", err)
				}
				h.Lower()
				if h.Mode() != driver.Shared || h.Lowering() == h.reader {
					t.Errorf("on its way it is %v, and may be lowered: %v", h.Mode(), h.Lowering())
				}
				err := h.Downgrade(t.Context(), driver.Request{Key: "k", Mode: driver.Shared})
				if (err == nil) != (want == nil) {
					t.Errorf("downgraded: %v", err)
				}
				matches(t, err, want, nil)
			}
			if h.Mode() != c.mode || h.Lowering() != c.lowering || h.Deadline().Sub(d.start) != c.deadline || (h.Cause() == nil) != (c.lost == nil) || !errors.Is(h.Cause(), c.lost) {
				t.Errorf("it is %v, may be lowered: %v, lasts until %v, and is over by %v", h.Mode(), h.Lowering(), h.Deadline().Sub(d.start), h.Cause())
			}
			if err := h.CanLower(); (err == nil) != (c.mode == driver.Exclusive && c.lost == nil || c.lowering) {
				t.Errorf("it can be lowered: %v", err)
			}
		})
	}
}

// TestRelease_SaysWhatBecameOfTheLease, by the answer and the state before it. The release goes
// on in the background while the store may have the lease.
func TestRelease_SaysWhatBecameOfTheLease(t *testing.T) {
	gone := driver.Reply{State: driver.Gone}
	for _, c := range []struct {
		name   string
		store  []any
		lost   bool
		late   bool // it is released at its deadline
		limit  time.Duration
		change func(*Hold)
		min    time.Duration
		times  []time.Duration
		limits []time.Duration
		closed time.Duration // how long the key is kept closed
		reject bool
		goesOn bool
		want   []error
		not    []error
	}{
		{name: "in time", store: []any{driver.Reply{State: driver.Released}}, times: []time.Duration{0}, limits: []time.Duration{2 * time.Second}},
		{name: "is gone", store: []any{gone}, times: []time.Duration{0}, want: []error{ErrLost}, not: []error{ErrBroken}},
		{name: "is gone, as it was lost", store: []any{gone}, lost: true, times: []time.Duration{0}},
		{name: "is gone at its deadline", store: []any{gone}, late: true, times: []time.Duration{0}},
		{name: "was broken", store: []any{driver.Reply{Broken: true, Reason: "by hand"}}, times: []time.Duration{0}, want: []error{ErrLost, ErrBroken}},
		{name: "was broken, as it was lost", store: []any{driver.Reply{Broken: true}}, lost: true, times: []time.Duration{0}},
		{name: "is gone after a loss", store: []any{errReset, gone}, times: []time.Duration{0, 20 * ms}},
		{name: "is gone after a refusal", store: []any{driver.ErrUnavailable, gone}, times: []time.Duration{0, 20 * ms}, want: []error{ErrLost}},
		{name: "is refused for good", store: []any{driver.ErrInvalid}, times: []time.Duration{0}, want: []error{driver.ErrInvalid}, not: []error{ErrUnknown}},
		{name: "is lost, then refused for good", store: []any{errReset, driver.ErrInvalid}, times: []time.Duration{0, 20 * ms}, want: []error{driver.ErrInvalid, ErrUnknown}},
		{
			name: "hangs", store: []any{nil}, goesOn: true, want: []error{ErrUnknown, context.DeadlineExceeded},
			times: []time.Duration{0, 2020 * ms, 3386667 * time.Microsecond, 4337778 * time.Microsecond, 5051852 * time.Microsecond},
		},
		{
			name: "is refused until the limit", store: []any{driver.ErrUnavailable}, limit: 140 * ms, goesOn: true, want: []error{driver.ErrUnavailable}, not: []error{ErrUnknown},
			times: []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}, limits: []time.Duration{100 * ms, 100 * ms, 80 * ms, 0},
		},
		{name: "is refused until just before the limit", store: []any{driver.ErrUnavailable}, limit: 140*ms - 1, goesOn: true, want: []error{driver.ErrUnavailable}, times: []time.Duration{0, 20 * ms, 60 * ms}},
		{name: "is lost, then refused until the limit", store: []any{errReset, driver.ErrUnavailable}, limit: 20 * ms, goesOn: true, want: []error{ErrUnknown}, not: []error{driver.ErrUnavailable}, times: []time.Duration{0, 20 * ms}},
		{name: "is lost, which was over", store: []any{errReset}, lost: true, limit: 1, goesOn: true, want: []error{ErrUnknown}, times: []time.Duration{0}},
		{name: "without time", store: []any{driver.ErrUnavailable}, limit: -time.Second, goesOn: true, want: []error{driver.ErrUnavailable}, times: []time.Duration{0}, limits: []time.Duration{0}},
		{name: "keeps the key closed", store: []any{driver.Reply{State: driver.Released}}, min: 15 * time.Second, times: []time.Duration{0}, closed: 14 * time.Second},
		{name: "was held for long enough", store: []any{driver.Reply{State: driver.Released}}, min: 500 * ms, times: []time.Duration{0}},
		{name: "keeps nothing closed that was lost", store: []any{driver.Reply{State: driver.Released}}, min: 15 * time.Second, lost: true, times: []time.Duration{0}},
		{name: "with a request on its way", store: []any{gone}, change: func(h *Hold) { h.unanswered = true }, times: []time.Duration{0}, reject: true, want: []error{ErrLost}},
		{name: "with a downgrade that was not answered", store: []any{gone}, change: func(h *Hold) { h.unsure = true }, times: []time.Duration{0}, reject: true, want: []error{ErrLost}},
		{name: "with a downgrade on its way", store: []any{gone}, change: func(h *Hold) { h.lowering = 1 }, times: []time.Duration{0}, reject: true, want: []error{ErrLost}},
	} {
		store := answers(c.store...)
		var tired atomic.Bool
		d := &script{release: func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) {
			if tired.Load() {
				return driver.Reply{State: driver.Released}, nil
			}
			return store(ctx, n, nil)
		}}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			terms := usual()
			terms.NoRenewal, terms.MinHold = true, c.min
			u := &user{terms: terms}
			h := take(t, s, u)
			time.Sleep(time.Second)
			if c.change != nil {
				c.change(h)
			}
			back, ended, lost := h.Leave(true, ErrClosed)
			if !back || !ended || lost != nil {
				t.Errorf("to be given back: %v, ended now: %v, lost: %v", back, ended, lost)
			}
			h.Left(ErrClosed)
			if c.late {
				time.Sleep(time.Until(h.Deadline()))
			}
			if c.limit == 0 {
				c.limit = 6 * time.Second
			}
			begin := time.Since(d.start)
			err := h.Release(t.Context(), c.lost, c.limit)
			tired.Store(true)
			if (err == nil) != (len(c.want) == 0) {
				t.Errorf("error %v", err)
			}
			matches(t, err, c.want, c.not)
			asked := d.of("release")
			var times, limits []time.Duration
			for _, q := range asked {
				times, limits = append(times, (q.at-begin).Round(time.Microsecond)), append(limits, q.limit)
				if q.ref.KeepClosed != c.closed || (q.ref.RejectIDFor == timing.ForbidFor) != c.reject || !c.reject && q.ref.RejectIDFor != 0 || q.ref.ID != "a" {
					t.Errorf("asked by %+v", q.ref)
				}
			}
			if len(times) > len(c.times) && c.name == "hangs" {
				times = times[:len(c.times)]
			}
			if !slices.Equal(times, c.times) || c.limits != nil && !slices.Equal(limits, c.limits) {
				t.Errorf("asked at %v for %v, want %v for %v", times, limits, c.times, c.limits)
			}
			time.Sleep(time.Second)
			if n := len(d.of("release")) - len(asked); (n > 0) != c.goesOn {
				t.Errorf("asked %d times in the background", n)
			}
		})
	}
}

func answersTo(all ...any) func(context.Context, int, *driver.Ref) (driver.Reply, error) {
	store := answers(all...)
	return func(ctx context.Context, n int, _ *driver.Ref) (driver.Reply, error) { return store(ctx, n, nil) }
}

// The timer has found the lease due, and before it checks again an answer moves the deadline. In
// a program only microseconds are between these steps, so the test takes them one by one.
func TestDeadlines_HR_C4_AnAnswerAtTheDeadlineLeavesNoLeaseWithoutATimer(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		u := &user{terms: usual()}
		u.terms.NoRenewal = true
		h := take(t, s, u)
		time.Sleep(5 * time.Second)
		s.expiry.clear(h) // as fire has
		h.asked = h.ttl
		h.Answer(s.Now(), driver.Reply{State: driver.Granted, Token: h.token}, nil)
		h.endIfExpired()
		want := h.Deadline()
		time.Sleep(time.Hour) // no call looks at the clock
		if at := u.told().at; !at.Equal(want) {
			t.Errorf("ended at %v, want %v", at, want)
		}
	})
}

// TestExpiry_RingsForEachInTimeAndKeepsNothing plays leases whose deadlines come in any order,
// move, and are cleared.
func TestExpiry_RingsForEachInTimeAndKeepsNothing(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		stage(t, new(script), func(t *testing.T, s *Session) {
			holds, users := make([]*Hold, 7), make([]*user, 7)
			for i := range holds {
				users[i] = &user{terms: &Terms{TTL: time.Second, NoRenewal: true, Log: usual().Log}}
				holds[i] = &Hold{s: s, events: users[i], id: string(rune('a' + i))}
			}
			set := make([]bool, 7)
			check := func() {
				synctest.Wait()
				kept := 0
				for i, h := range holds {
					over := set[i] && !s.Now().Before(h.Deadline())
					if at := users[i].told().at; over != (h.Cause() != nil) || over && !at.Equal(h.Deadline()) {
						t.Fatalf("lease %d ended at %v, its deadline is %v, now is %v", i, at, h.Deadline(), s.Now())
					}
					if set[i] && !over {
						kept++
					}
				}
				s.expiry.mu.Lock()
				defer s.expiry.mu.Unlock()
				armed := s.expiry.timer.at // without a lease, at may be the time of an earlier one
				_, first := s.expiry.heap.first()
				if n := len(s.expiry.heap.entries); n != kept || kept > 0 && (armed == 0 || armed > first) {
					t.Fatalf("%d alarms for %d leases, the timer is set to %v", n, kept, armed)
				}
			}
			for range 60 {
				i, d := rnd.IntN(len(holds)), time.Duration(1+rnd.IntN(3000))*ms
				h := holds[i]
				switch what := rnd.IntN(6); {
				case what == 0:
					time.Sleep(d / 8)
				case set[i] && h.Cause() != nil:
				case what < 5:
					h.mu.Lock()
					h.deadline = s.instant(s.Now().Add(d))
					s.expiry.set(h, h.deadline)
					h.mu.Unlock()
					set[i] = true
				case set[i]:
					s.expiry.clear(h)
					set[i] = false
				}
				check()
			}
			time.Sleep(3 * time.Second)
			check()
			s.expiry.mu.Lock()
			defer s.expiry.mu.Unlock()
			if s.expiry.timer.at != 0 {
				t.Fatalf("the timer is still set to %v", s.expiry.timer.at)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
