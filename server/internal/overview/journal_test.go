package overview

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// The request that ends a lease and the one that is granted the next run side by side:
// either may tell first.
func TestJournal_AHandOverIsNotedInWhateverOrderItsTwoRequestsTellOfIt(t *testing.T) {
	for name, tell := range map[string]func(o *Overview, asked, ended, granted time.Time){
		"released, then granted": func(o *Overview, asked, ended, granted time.Time) {
			o.Released("k", "a", driver.Released, ended, granted)
			o.Granted("k", "b", "", asked, granted, true)
		},
		"granted, then released": func(o *Overview, asked, ended, granted time.Time) {
			o.Granted("k", "b", "", asked, granted, true)
			o.Released("k", "a", driver.Released, ended, granted)
		},
		"broken, then granted": func(o *Overview, asked, ended, granted time.Time) {
			o.Broken("k", "a", "root", "why", driver.Released, ended, granted)
			o.Granted("k", "b", "", asked, granted, true)
		},
		"granted, then broken": func(o *Overview, asked, ended, granted time.Time) {
			o.Granted("k", "b", "", asked, granted, true)
			o.Broken("k", "a", "root", "why", driver.Released, ended, granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				defer store.Close()
				o := New(store, time.Second, slog.New(slog.DiscardHandler))
				asked := time.Now()
				ended := asked.Add(time.Second)
				granted := ended.Add(5 * time.Millisecond)
				o.Granted("k", "a", "", asked, asked, false)
				tell(o, asked, ended, granted)
				handed := func() []HandOver {
					_, all := o.log.past("k")
					return all
				}
				if got := handed(); len(got) != 1 || got[0] != (HandOver{granted, 5000}) {
					t.Fatalf("noted: %v", got)
				}
				if n := o.log.ring.current().HandOvers; n != 1 {
					t.Errorf("%d are counted", n)
				}
				// One that nobody ended and one that nobody waited for are none.
				later := granted.Add(time.Hour)
				o.Granted("k", "c", "", asked, later, true)
				o.Released("k", "c", driver.Released, later.Add(time.Second), later.Add(time.Second))
				o.Granted("k", "d", "", later, later.Add(2*time.Second), false)
				o.Released("k", "e", driver.Released, later.Add(time.Second), later.Add(3*time.Second))
				if got := handed(); len(got) != 1 {
					t.Fatalf("noted besides: %v", got[1:])
				}
			})
		})
	}
}

// A break is told of by the request that breaks, by a look that finds the lease gone, and
// by the client of the lease, in any order. The journal has it once, with who did it.
func TestJournal_ABreakIsNotedWithWhoDidItInWhateverOrderItIsTold(t *testing.T) {
	holder := driver.Snapshot{Key: "k", Holders: []driver.Holder{{ID: "a", Owner: "w", Remaining: time.Hour}}}
	waiter := driver.Snapshot{Key: "k", Waiters: []driver.Waiter{{ID: "a", Owner: "w"}}}
	gone := driver.Snapshot{Key: "k"}
	now := time.Now()
	tells := map[string]func(o *Overview){
		"broken": func(o *Overview) { o.Broken("k", "a", "root", "why", driver.Released, now, now) },
		"seen":   func(o *Overview) { o.log.compare(&holder, &gone, nil, now) },
		"lost":   func(o *Overview) { o.Lost("k", "a", true, "why", now) },
	}
	places := map[string]func(o *Overview){
		"broken": func(o *Overview) { o.Broken("k", "a", "root", "why", driver.Left, now, now) },
		"seen":   func(o *Overview) { o.log.compare(&waiter, &gone, nil, now) },
		"left":   func(o *Overview) { o.Released("k", "a", driver.Left, now, now) },
	}
	for _, row := range []struct {
		kind  string
		lost  int64
		order []string
		tells map[string]func(o *Overview)
	}{
		{broken, 1, []string{"broken", "seen", "lost"}, tells}, {broken, 1, []string{"broken", "lost", "seen"}, tells},
		{broken, 1, []string{"seen", "broken", "lost"}, tells}, {broken, 1, []string{"seen", "lost", "broken"}, tells},
		{broken, 1, []string{"lost", "broken", "seen"}, tells}, {broken, 1, []string{"lost", "seen", "broken"}, tells},
		{left, 0, []string{"broken", "seen", "left"}, places}, {left, 0, []string{"broken", "left", "seen"}, places},
		{left, 0, []string{"seen", "broken", "left"}, places}, {left, 0, []string{"seen", "left", "broken"}, places},
		{left, 0, []string{"left", "broken", "seen"}, places}, {left, 0, []string{"left", "seen", "broken"}, places},
	} {
		store := memdriver.New()
		o := New(store, time.Second, slog.New(slog.DiscardHandler))
		for _, name := range row.order {
			row.tells[name](o)
		}
		events, _ := o.log.past("k")
		if len(events) != 1 || events[0].Kind != row.kind || events[0].By != "root" || events[0].Reason != "why" || events[0].Seen {
			t.Errorf("%v is noted as %+v", row.order, events)
		}
		if n := o.log.ring.current().Broken; n != row.lost {
			t.Errorf("%v: %d are counted", row.order, n)
		}
		_ = store.Close()
	}
}

// What a request tells after a look has already shown the lock as it is now changes
// nothing of the lock, but its history.
func TestOverview_APageIsToldOfWhatIsNotedAfterTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		defer store.Close()
		if _, err := store.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		o := New(store, time.Second, slog.New(slog.DiscardHandler))
		running(t, o)
		one := o.Follow("k")
		defer one.Close()
		next := func() One {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := one.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := next(); len(got.Events) != 0 {
			t.Fatalf("the history is %+v", got.Events)
		}
		o.Granted("k", "a", "w", time.Now(), time.Now(), false)
		if got := next(); len(got.Events) != 1 {
			t.Fatalf("the history is %+v", got.Events)
		}
	})
}
