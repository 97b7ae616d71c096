package library_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// away makes every request to the store fail.
func away(d *faultDriver, f fault) {
	for _, v := range []verb{acquire, renew, release} {
		d.on(v, 0, f)
	}
}

// outages are the kinds of outages of a store.
var outages = map[string]fault{"refuses": refuses, "fails": fails, "hangs": hangs, "silent": silent}

// TestLock_AnOutageUsesUpOneAttempt: the requests that are repeated during an outage count as one
// attempt.
func TestLock_AnOutageUsesUpOneAttempt(t *testing.T) {
	for name, f := range outages {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, d := open(t, store, leasehold.WithRetry(leasehold.Backoff{Base: 10 * time.Second, Attempts: 3}))
			held := lock(t, a, "k")
			time.AfterFunc(5*time.Second, func() { away(d, f) })
			time.AfterFunc(25*time.Second, func() { d.heal(); _ = held.Release() })
			l := must(t)(b.Mutex("k").Lock(t.Context()))
			giveBack(t, l)
			if n := d.count(acquire); n < 3 {
				t.Errorf("the store was asked %d times", n)
			}

			held = lock(t, a, "k")
			away(d, f)
			time.AfterFunc(20*time.Second, d.heal)
			_, err := b.Mutex("k").Lock(t.Context())
			wantErr(t, err, leasehold.ErrHeld)
			if !strings.Contains(err.Error(), "3 attempts") {
				t.Error(err)
			}
			giveBack(t, held)
		})
	}
}

func TestElection_Lead_OutlivesAStoreThatIsAway(t *testing.T) {
	for name, way := range map[string][]leasehold.Option{"in the queue": nil, "alongside": {leasehold.WithRetry(leasehold.Alongside())}} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, append(way, leasehold.WithMaxOutage(time.Second))...)
			away(d, refuses) // at the start
			time.AfterFunc(10*time.Minute, d.heal)
			terms := 0
			err := c.Election("k", "v", leasehold.WithTTL(time.Second)).Lead(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
				if terms++; terms == 3 {
					return nil
				}
				away(d, hangs) // and in the middle of a term
				time.AfterFunc(10*time.Minute, d.heal)
				<-ctx.Done()
				return ctx.Err()
			})
			if err != nil || terms != 3 {
				t.Errorf("%v after %d terms", err, terms)
			}
		})
	}
}

// TestOutage_IsToldAndLoggedByTheDefaultLogger: without WithLogger an outage, such as a wrong port,
// is logged by the program's default logger. The test changes it, so it is not parallel.
func TestOutage_IsToldAndLoggedByTheDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	for name, f := range outages {
		var logged bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			var told []leasehold.OutageInfo
			c, d := open(t, store, leasehold.WithObserver(leasehold.Observer{Outage: func(o leasehold.OutageInfo) { told = append(told, o) }}))
			began := time.Now()
			away(d, f)
			time.AfterFunc(20*time.Second, d.heal)
			giveBack(t, must(t)(c.Mutex("k").Lock(t.Context())))
			synctest.Wait() // events are delivered in the background
			if len(told) != 2 || told[0].Over || !told[1].Over || told[0].Err == nil || !told[0].Since.Equal(began) {
				t.Errorf("observed %+v, began %v", told, began)
			}
		})
		for _, want := range []string{"level=WARN msg=\"leasehold: the store does not answer\"", "answers again"} {
			if text := logged.String(); !strings.Contains(text, want) {
				t.Errorf("the default logger has %q", text)
			}
		}
	}
}

// slowLog is a logger that takes a minute for each line.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Minute)
	return nil
}

func TestLoss_HR_C2_IsToldBeforeItIsLogged(t *testing.T) {
	for name, look := range map[string]func(*leasehold.Lease){
		"by the timer": func(l *leasehold.Lease) { <-l.Context().Done() },
		"by a look": func(l *leasehold.Lease) {
			for l.State() != leasehold.Lost {
				time.Sleep(time.Millisecond)
			}
		},
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithLogger(slog.New(slowLog{})))
			defer time.Sleep(10 * time.Minute) // until all lines are written
			l := lock(t, c, "k")
			d.on(renew, 0, fails)
			start := time.Now()
			look(l)
			if got := time.Since(start); got > ttl {
				t.Errorf("lost after %v", got)
			}
		})
	}
}

func TestLoss_HR_C2_LoggingItDelaysNoRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithLogger(slog.New(slowLog{})))
		defer time.Sleep(10 * time.Minute) // until all lines are written
		lost := lock(t, c, "k")
		var others []*leasehold.Lease
		for i := range 20 {
			others = append(others, lock(t, c, fmt.Sprint(i)))
		}
		deleteIt(t, store, lost)
		<-lost.Context().Done()
		time.Sleep(10 * ttl)
		for _, l := range others {
			if l.State() != leasehold.Held {
				t.Errorf("%s: %v", l.Key(), l.State())
			}
		}
	})
}
