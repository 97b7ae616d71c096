package session

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// TestListener_OpensOneSubscription, opens another one only if the first failed, and closes it.
func TestListener_OpensOneSubscription(t *testing.T) {
	d := &audible{slow: time.Second, fail: []error{errReset}, address: "here"}
	stage(t, d, func(t *testing.T, s *Session) {
		var resyncs, others atomic.Int32
		s.listener.hear = func(h driver.Hint) {
			if h.Kind == driver.HintResync {
				resyncs.Add(1)
			} else {
				others.Add(1)
			}
		}
		is := func(subscriptions, closed int, told int32) {
			t.Helper()
			opened, ended := d.subscriptions()
			if len(opened) != subscriptions || ended != closed || d.lines.Load() != 1 || resyncs.Load() != told || others.Load() != 0 {
				t.Errorf("subscriptions at %v, %d closed, %d lines, %d resyncs", opened, ended, d.lines.Load(), resyncs.Load())
			}
		}
		if !s.Hears() || s.Address() != "" {
			t.Errorf("it is subscribed: %v, at %q", s.Hears(), s.Address())
		}
		s.Listen()
		s.Listen()
		synctest.Wait()
		if err := s.listener.listen(); !errors.Is(err, errOpening) {
			t.Errorf("a second subscription: %v", err)
		}
		time.Sleep(time.Minute)
		is(1, 0, 1)
		s.Listen()
		time.Sleep(time.Minute)
		s.Listen()
		if err := s.listener.listen(); err != nil {
			t.Errorf("it is not subscribed: %v", err)
		}
		if is(2, 0, 2); s.Address() != "here" {
			t.Errorf("it is subscribed at %q", s.Address())
		}
		_, _ = s.End()
		s.Listen()
		if err := s.listener.listen(); err != nil {
			t.Errorf("it is not subscribed: %v", err)
		}
		is(2, 1, 2)
	})
}

// TestListener_ClosesASubscriptionThatComesTooLate, and opens no further one.
func TestListener_ClosesASubscriptionThatComesTooLate(t *testing.T) {
	d := &audible{slow: time.Second, address: "here"}
	stage(t, d, func(t *testing.T, s *Session) {
		var told atomic.Int32
		s.listener.hear = func(driver.Hint) { told.Add(1) }
		go func() { _ = s.listener.listen() }()
		synctest.Wait()
		s.listener.close()
		time.Sleep(time.Minute)
		if _, closed := d.subscriptions(); closed != 1 || told.Load() != 0 || d.lines.Load() != 0 {
			t.Errorf("closed %d times, %d hints, %d lines", closed, told.Load(), d.lines.Load())
		}
	})
	stage(t, new(audible), func(t *testing.T, s *Session) {
		s.listener.close()
		s.listener.start(func(func()) { t.Error("a subscription is opened") })
	})
}

// TestAwait_IsForAMoment: it lasts until there is an address, or the subscription has failed, or
// a moment has passed since the subscription was requested.
func TestAwait_IsForAMoment(t *testing.T) {
	for _, c := range []struct {
		name    string
		slow    time.Duration // the opening
		address time.Duration // when there is one
		fail    bool
		never   bool          // no call asks for one
		from    time.Duration // when a call waits
		ctx     time.Duration // its end; 0 for never
		want    time.Duration // until when
	}{
		{name: "an address at once", slow: 100 * ms, address: 0, want: 100 * ms},
		{name: "an address later", slow: 100 * ms, address: 200 * ms, want: 200 * ms},
		{name: "no address", slow: 100 * ms, address: time.Hour, want: 250 * ms},
		{name: "a slow opening", slow: time.Second, want: 250 * ms},
		{name: "a failure", slow: 100 * ms, fail: true, want: 100 * ms},
		{name: "later", slow: time.Second, from: 200 * ms, want: 250 * ms},
		{name: "at the last moment", slow: time.Second, from: 250*ms - 1, want: 250 * ms},
		{name: "too late", slow: time.Second, from: 250 * ms, want: 250 * ms},
		{name: "much too late", slow: time.Hour, from: time.Minute, want: time.Minute},
		{name: "a context that ends", slow: time.Second, ctx: 150 * ms, want: 150 * ms},
		{name: "nobody listens", never: true, want: 0},
	} {
		d := &audible{slow: c.slow}
		if c.fail {
			d.fail = []error{errReset}
		}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			if !c.never {
				s.Listen()
			}
			go func() {
				time.Sleep(c.address)
				d.at("here")
				if c.address > 0 {
					d.says(driver.Hint{Kind: driver.HintResync})
				}
			}()
			ctx, cancel := t.Context(), func() {}
			if c.ctx > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.ctx)
			}
			defer cancel()
			time.Sleep(c.from)
			s.listener.await(ctx)
			if got := time.Since(d.start); got != c.want {
				t.Errorf("waited until %v, want %v", got, c.want)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// TestQueue_AWaiterThatStoodInLineAwaitsTheAddress, and a try does not.
func TestQueue_AWaiterThatStoodInLineAwaitsTheAddress(t *testing.T) {
	for _, waits := range []bool{true, false} {
		d := &audible{slow: 5 * time.Second}
		stage(t, d, func(t *testing.T, s *Session) {
			s.Listen()
			fill(&s.asking)
			go func() {
				time.Sleep(100 * ms)
				s.asking.end(0, true)
			}()
			terms, want := usual(), 100*ms
			if waits {
				want = 250 * ms
				w, err := s.NewWaiter(terms, terms.request())
				must(t, err)
				if a, err := w.Queue(t.Context()); err != nil || a.Sent().Sub(w.began) != want {
					t.Errorf("asked at %v: %v", a.Sent().Sub(w.began), err)
				}
				w.Close()
			} else if _, err := s.Try(t.Context(), terms, terms.request()); err != nil {
				t.Error(err)
			}
			if got := d.times("acquire"); len(got) != 1 || got[0] != want {
				t.Errorf("asked at %v, want %v", got, want)
			}
		})
	}
}

// TestAlert_ListensOnceALeaseIsHeldForASecond: shorter leases at the same time do not matter.
func TestAlert_ListensOnceALeaseIsHeldForASecond(t *testing.T) {
	type held struct{ from, to time.Duration }
	for _, c := range []struct {
		name  string
		holds []held
		fail  []error
		want  []time.Duration
		lines int32
	}{
		{name: "for long", holds: []held{{0, time.Hour}}, want: []time.Duration{time.Second}},
		{name: "not for long", holds: []held{{0, 999 * ms}, {5 * time.Second, 5500 * ms}}},
		{name: "behind a short one", holds: []held{{0, 500 * ms}, {700 * ms, time.Hour}}, want: []time.Duration{1700 * ms}},
		{name: "several behind a short one", holds: []held{{0, 500 * ms}, {700 * ms, time.Hour}, {750 * ms, time.Hour}, {800 * ms, time.Hour}, {900 * ms, time.Hour}}, want: []time.Duration{1700 * ms}},
		{name: "after a time without any", holds: []held{{0, 500 * ms}, {5 * time.Second, time.Hour}}, want: []time.Duration{6 * time.Second}},
		{name: "while others are taken", holds: []held{{0, time.Hour}, {500 * ms, 600 * ms}, {900 * ms, 990 * ms}}, want: []time.Duration{time.Second}},
		{name: "of a store that does not serve it", holds: []held{{0, time.Hour}}, fail: []error{errors.ErrUnsupported}, want: []time.Duration{time.Second}},
		{name: "of a store that fails at first", holds: []held{{0, time.Hour}}, fail: []error{errReset}, want: []time.Duration{time.Second, 61 * time.Second}, lines: 1},
	} {
		d := &audible{fail: c.fail, address: "here"}
		play(t, c.name, d, func(t *testing.T, s *Session) {
			for i, at := range c.holds {
				go func() {
					time.Sleep(at.from)
					terms := usual()
					terms.TTL, terms.NoRenewal = 2*time.Hour, true
					req := terms.request()
					req.ID = string(rune('a' + i))
					h := new(Hold)
					if err := s.Hold(h, req, Grant{Origin: s.Now()}, &user{terms: terms}); err != nil {
						t.Error(err)
					}
					time.Sleep(at.to - at.from)
					h.endWith(ErrGone, false)
				}()
			}
			time.Sleep(3 * time.Hour)
			if opened, _ := d.subscriptions(); !slices.Equal(opened, c.want) || d.lines.Load() != c.lines {
				t.Errorf("listens at %v, logs %d lines, want %v and %d", opened, d.lines.Load(), c.want, c.lines)
			}
		})
	}
}

func TestAlert_IsNotForAStoreWithoutHintsNorAfterTheEnd(t *testing.T) {
	stage(t, new(script), func(t *testing.T, s *Session) {
		take(t, s, &user{terms: usual()})
		if s.alert.timer != nil {
			t.Error("a timer is set")
		}
	})
	stage(t, new(audible), func(t *testing.T, s *Session) {
		take(t, s, &user{terms: usual()})
		_, _ = s.End()
		s.listenForBreaks() // the timer may have rung at the same moment
		if s.busy != 0 {
			t.Errorf("%d calls are under way", s.busy)
		}
	})
}
