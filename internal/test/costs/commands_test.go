package costs_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestCommands_FreePairIsTwo shows that the library sends no more than the store: no
// subscription, no other question first. Each command is one round trip.
func TestCommands_FreePairIsTwo(t *testing.T) {
	eachRedis(t, func(t *testing.T, s *redistest.Server, open func(...leasehold.Option) *leasehold.Client) {
		m := open().Mutex("k")
		const n = 50
		want := map[string]int64{"evalsha": 2 * n, "exists": n, "set": n, "incr": n, "getrange": n, "del": n}
		var got map[string]int64
		for range 5 { // a new connection costs a look at the server's clock
			got = s.Calls(t, func() {
				for range n {
					pair(t, m)
				}
			})
			if maps.Equal(got, want) {
				return
			}
		}
		t.Errorf("%d free pairs cost %v, want %v", n, got, want)
	})
}

// TestCommands_WaitServedInTurnIsThreeAtMost serves many waiters once each. A wait costs a
// request for a place, a release, and a confirmation, unless the release that hands over to the
// next comes first. A waiter has no goroutine except its caller's.
func TestCommands_WaitServedInTurnIsThreeAtMost(t *testing.T) {
	eachRedis(t, func(t *testing.T, s *redistest.Server, open func(...leasehold.Option) *leasehold.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const n = 200
		clients := []*leasehold.Client{open(), open()}
		for _, c := range clients {
			waitOnce(t, c) // the subscription stands
		}
		first := lock(t, clients[0])
		goroutines := runtime.NumGoroutine()
		got := s.Calls(t, func() {
			waiters := queue(ctx, t, clients, n)
			until(t, func() bool { return runtime.NumGoroutine()-goroutines-n <= 10 })
			noErr(t, first.Release())
			waiters.Wait()
		})
		// A heartbeat each 5 s is allowed for.
		perWait := float64(got["evalsha"]) / n
		t.Logf("%.2f commands per wait", perWait)
		if perWait > 3.3 {
			t.Errorf("%.2f commands per wait, want 3 at most: %v", perWait, got)
		}
	})
}

// queued returns the number of tickets that the store has for the lock "k", or -1 if the store
// did not answer in time. A store that serves thousands of waiters may take longer than a
// request's timeout, so [until] asks again.
func queued(t *testing.T, c *leasehold.Client) int {
	t.Helper()
	snap, err := c.Inspect(context.Background(), "k")
	if errors.Is(err, leasehold.ErrUnavailable) {
		return -1
	}
	noErr(t, err)
	return len(snap.Waiters)
}

// waitOnce makes a call of c wait for a lock.
func waitOnce(t *testing.T, c *leasehold.Client) {
	t.Helper()
	outer := lock(t, c)
	waiter := queue(t.Context(), t, []*leasehold.Client{c}, 1)
	noErr(t, outer.Release())
	waiter.Wait()
}

// TestCommands_AThousandLeasesAreRenewedInBatches expects at least ten leases in a command. There
// are a hundred unless the leases were taken slowly.
func TestCommands_AThousandLeasesAreRenewedInBatches(t *testing.T) {
	const n = 1000
	eachRedis(t, func(t *testing.T, s *redistest.Server, open func(...leasehold.Option) *leasehold.Client) {
		// They are renewed after 2.4 s; a machine that is too busy for that still loses no lease.
		c := open(leasehold.WithTTL(time.Minute), leasehold.WithRenewFraction(0.04))
		hold(t, c, n)
		goroutines := runtime.NumGoroutine()
		s.ResetStats(t)
		until(t, func() bool { return s.CommandStats(t)["pexpire"].Calls >= n })
		stats := s.CommandStats(t)
		if calls := stats["evalsha"].Calls + stats["eval"].Calls; calls > n/10 {
			t.Errorf("%d commands for %d renewals", calls, stats["pexpire"].Calls)
		}
		until(t, func() bool { return runtime.NumGoroutine()-goroutines <= 10 })
	})
}

// TestCommands_HoldersSubscribeOnce: a process receives breaks by one subscription for all its
// leases, and subscribes once it has held a lease for a second.
func TestCommands_HoldersSubscribeOnce(t *testing.T) {
	eachRedis(t, func(t *testing.T, s *redistest.Server, open func(...leasehold.Option) *leasehold.Client) {
		c := open()
		s.ResetStats(t)
		slowest := time.Duration(0) // a machine that stands still makes a short lock a long one
		for began := time.Now(); time.Since(began) < 1500*time.Millisecond; {
			sent := time.Now()
			pair(t, c.Mutex("short"))
			slowest = max(slowest, time.Since(sent))
		}
		if n := s.CommandStats(t)["subscribe"].Calls; n != 0 && slowest < time.Second {
			t.Errorf("short locks subscribe %d times", n)
		}
		goroutines := runtime.NumGoroutine()
		hold(t, c, 100)
		until(t, func() bool { return s.CommandStats(t)["subscribe"].Calls > 0 })
		hold(t, c, 100)
		time.Sleep(1500 * time.Millisecond) // they are held for long as well by then
		if n := s.CommandStats(t)["subscribe"].Calls; n != 1 {
			t.Errorf("200 leases subscribe %d times", n)
		}
		if n := runtime.NumGoroutine() - goroutines; n > 10 {
			t.Errorf("%d goroutines for 200 leases", n)
		}
		const pairs = 20
		if n := s.Calls(t, func() {
			for range pairs {
				pair(t, c.Mutex("short"))
			}
		})["evalsha"]; n != 2*pairs {
			t.Errorf("%d free pairs next to the leases cost %d scripts", pairs, n)
		}
	})
}
