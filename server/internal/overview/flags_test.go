package overview

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// names are the flags of a lock after a look.
func (o *Overview) names(key string) (names []string) {
	for _, f := range o.table[key].flags {
		names = append(names, f.Name)
	}
	return names
}

// shown has a lock looked at.
func shown(o *Overview, key string, holders []driver.Holder, waiters ...driver.Waiter) {
	o.seen(key, driver.Snapshot{Holders: holders, Waiters: waiters, Token: 1}, time.Millisecond, time.Now())
}

func TestFlags_EachIsRaisedWhenItShouldBeAndNotBefore(t *testing.T) {
	holder := func(owner string, left time.Duration) []driver.Holder {
		return []driver.Holder{{ID: "a", Owner: owner, Remaining: left, Since: time.Now(), Confirmed: true}}
	}
	waiter := func(id, owner string) driver.Waiter {
		return driver.Waiter{ID: id, Owner: owner, Since: time.Now()}
	}
	for name, story := range map[string]struct {
		flag string
		tell func(o *Overview) // ends where there is nothing to tell yet
		then func(o *Overview)
	}{
		"renewal missed": {"renewal-missed", func(o *Overview) {
			shown(o, "k/9", holder("w", 30*time.Second))
			time.Sleep(15 * time.Second)
			shown(o, "k/9", holder("w", 12*time.Second)) // it has never been renewed: perhaps it never is
			shown(o, "k/9", holder("w", 30*time.Second))
			time.Sleep(15 * time.Second)
			shown(o, "k/9", holder("w", 15*time.Second))
		}, func(o *Overview) {
			time.Sleep(3 * time.Second)
			shown(o, "k/9", holder("w", 12*time.Second))
		}},
		"no end": {"no-end", func(o *Overview) {
			h := holder("", time.Second)
			h[0].Foreign = true
			shown(o, "k/9", h)
		}, func(o *Overview) {
			h := holder("", 0)
			h[0].Foreign = true
			shown(o, "k/9", h)
		}},
		"queue grows": {"queue-grows", func(o *Overview) {
			shown(o, "k/9", holder("w", time.Minute), waiter("1", "x"), waiter("2", "y"))
			time.Sleep(30 * time.Second)
			shown(o, "k/9", holder("w", time.Minute), waiter("1", "x"), waiter("2", "y"), waiter("3", "z"))
		}, func(o *Overview) {
			time.Sleep(10 * time.Second)
			var all []driver.Waiter
			for i := range 9 {
				all = append(all, waiter(fmt.Sprint(i), fmt.Sprint("x", i)))
			}
			shown(o, "k/9", holder("w", time.Minute), all...)
		}},
		"waits for itself": {"waits-for-itself", func(o *Overview) {
			shown(o, "k/9", holder("w", time.Minute), waiter("1", "x"))
		}, func(o *Overview) {
			shown(o, "k/9", holder("w", time.Minute), waiter("1", "w"))
		}},
		"flapping": {"flapping", func(o *Overview) {
			o.Lost("k/9", "1", false, "", time.Now())
			o.Lost("k/9", "2", true, "stuck", time.Now())
			shown(o, "k/9", holder("w", time.Minute))
		}, func(o *Overview) {
			o.Lost("k/9", "3", false, "", time.Now())
			shown(o, "k/9", holder("w", time.Minute))
		}},
		"limits differ": {"limits-differ", func(o *Overview) {
			shown(o, "k/9", holder("w", time.Minute))
		}, func(o *Overview) {
			o.Mismatched("k/9", time.Now())
			shown(o, "k/9", holder("w", time.Minute))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := New(memdriver.New(), time.Second, slog.New(slog.DiscardHandler))
				story.tell(o)
				if got := o.names("k/9"); len(got) > 0 {
					t.Fatalf("too early: %v", got)
				}
				story.then(o)
				if got := o.names("k/9"); !slices.Equal(got, []string{story.flag}) {
					t.Errorf("%v, want %s", got, story.flag)
				}
				for _, f := range o.table["k/9"].flags {
					if !strings.HasSuffix(f.Text, ".") || f.rank() == 0 {
						t.Errorf("%+v", f)
					}
				}
			})
		})
	}
}

func TestJournal_ALookAndARequestTellOfOneGrantOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(memdriver.New(), time.Second, slog.New(slog.DiscardHandler))
		held := func(id string) []driver.Holder {
			return []driver.Holder{{ID: id, Owner: id, Remaining: time.Minute, Since: time.Now(), Confirmed: true}}
		}
		began := time.Now()
		o.Granted("k", "first", "first", began, began, false)
		shown(o, "k", held("first"))
		o.Waits("k", "second", "second", began)
		time.Sleep(time.Second)
		released := time.Now()
		time.Sleep(3 * time.Millisecond)
		shown(o, "k", held("second")) // the look is faster than both requests
		o.Released("k", "first", driver.Released, released, time.Now())
		o.Granted("k", "second", "second", began, time.Now(), true)
		events, _ := o.log.past("k")
		var kinds []string
		for _, e := range events {
			kinds = append(kinds, e.LeaseID+" "+e.Kind)
		}
		slices.Sort(kinds)
		want := []string{"first granted", "first released", "second granted", "second waits"}
		if !slices.Equal(kinds, want) {
			t.Errorf("%q, want %q", kinds, want)
		}
		if n := o.log.ring.current().Acquisitions; n != 2 {
			t.Errorf("%d acquisitions", n)
		}
	})
}

func TestJournal_ALeaseThatRanOutIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(memdriver.New(), time.Second, slog.New(slog.DiscardHandler))
		for range 12 {
			left := 10*time.Second - time.Since(o.log.began)
			if left <= 0 {
				shown(o, "k", nil)
				break
			}
			shown(o, "k", []driver.Holder{{ID: "a", Owner: "w", Remaining: left, Since: o.log.began}})
			time.Sleep(time.Second)
		}
		events, _ := o.log.past("k")
		if len(events) != 1 || events[0].Kind != lost || events[0].Owner != "w" {
			t.Errorf("%+v", events)
		}
	})
}

func TestJournal_IsBounded(t *testing.T) {
	o := New(memdriver.New(), time.Second, slog.New(slog.DiscardHandler))
	now := time.Now()
	for i := range 3 * maxTracks {
		o.Granted(fmt.Sprint("k", i), "a", "w", now, now, false)
		o.Granted("busy", fmt.Sprint(i), "w", now, now, false)
	}
	events, _ := o.log.past("busy")
	if len(o.log.tracks) > maxTracks || o.log.order.Len() != len(o.log.tracks) || len(events) != maxEvents || len(o.nudged) > maxNudged {
		t.Errorf("%d tracks, %d events, %d to be looked at", len(o.log.tracks), len(events), len(o.nudged))
	}
	for i := range 2 * samples {
		o.log.ring.renewed(now.Add(time.Duration(i) * sampleEvery))
	}
	if len(o.log.ring.done) != samples {
		t.Errorf("%d samples", len(o.log.ring.done))
	}
}

func TestOverview_AsksNothingWhileNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		defer store.Close()
		o := New(store, time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.Run(ctx); close(done) }()
		time.Sleep(time.Hour)
		v := o.Vitals(time.Now())
		looks := int64(0)
		for _, s := range v.Samples {
			looks += s.Looks
		}
		if looks > 370 {
			t.Errorf("%d requests in an hour in which no page was open", looks)
		}
		cancel()
		<-done
	})
}
