package leasehold_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// How a loss is told.

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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
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
		if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: lost.ID()}); err != nil {
			t.Fatal(err)
		}
		<-lost.Context().Done()
		time.Sleep(10 * ttl)
		for _, l := range others {
			if l.State() != leasehold.Held {
				t.Errorf("%s: %v", l.Key(), l.State())
			}
		}
	})
}

func TestOutage_HR_C2_LoggingItDelaysNoRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithLogger(slog.New(slowLog{})))
		defer time.Sleep(10 * time.Minute) // until all lines are written
		var leases []*leasehold.Lease
		for i := range 20 {
			leases = append(leases, lock(t, c, fmt.Sprint(i)))
		}
		away(d, refuses)
		time.Sleep(ttl / 2) // an outage
		d.heal()
		time.Sleep(10 * ttl)
		for _, l := range leases {
			if l.State() != leasehold.Held {
				t.Errorf("%s: %v", l.Key(), l.State())
			}
		}
	})
}
