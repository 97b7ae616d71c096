package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/again"
)

// tiny is just enough for every line to run.
var tiny = effort{
	rounds: 1, slice: 5 * time.Millisecond, waiters: 8, crowds: 1, crowd: 50 * time.Millisecond,
	drains: 1, leases: 20, most: 60, mostTTL: 300 * time.Millisecond, watch: 100 * time.Millisecond, ttl: 300 * time.Millisecond,
	crashes: 1, queues: []int{2, 4}, samples: 2, keys: 100,
	warmUp: 20 * time.Millisecond, settle: 20 * time.Millisecond, patience: 15 * time.Second, crashTTL: 50 * time.Millisecond,
}

// TestMain makes the test binary the etcd server that it starts.
func TestMain(m *testing.M) {
	serveEtcdIfAsked()
	os.Exit(m.Run())
}

func TestExperiments_AllOfThemRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	err := with(tiny, regexp.MustCompile(""), func(b *bench) {
		for _, e := range experiments() {
			t.Run(e.name, func(t *testing.T) {
				var result *table
				// The leases of tiny are over soon after they should have been renewed.
				err := again.IfStalled(t, tiny.ttl/3, func() (err error) {
					result, err = b.measure(ctx, e)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if text := result.markdown(); !strings.Contains(text, "Leasehold") {
					t.Errorf("Leasehold does not take part:\n%s", text)
				}
			})
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOvertakers_CountsWhoPassesALongerWait(t *testing.T) {
	ms := time.Millisecond
	first := turn{waiter: 1, called: 0, got: 30 * ms, served: true}
	second := turn{waiter: 2, called: 10 * ms, got: 20 * ms, served: true}
	third := turn{waiter: 3, called: 11 * ms, got: 40 * ms, served: true}
	all := []turn{second, first, third}
	if got, want := overtakers(all, all), 1.0/3; got != want {
		t.Errorf("one of three overtook: got %v, want %v", got, want)
	}
}

func TestJain_IsOneOverNIfOneGetsAll(t *testing.T) {
	if got := jain([]float64{7, 0, 0, 0}); got != 0.25 {
		t.Errorf("got %v, want 0.25", got)
	}
	if got := jain([]float64{3, 3, 3}); got != 1 {
		t.Errorf("all equal: got %v, want 1", got)
	}
}
