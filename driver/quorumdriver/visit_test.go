package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

// twice asks for one lease in two processes, as two replicas of a service do for a
// client that asks again. The first request is late at the slow nodes, and loses its
// round. The second is sent before that, and is granted the lease.
func twice(t *testing.T, all []*server, slow []int, way time.Duration, opts ...option) (second asker) {
	t.Helper()
	first, second := quorumOf(t, all).begun(), quorumOf(t, all).begun()
	for _, i := range slow {
		all[i].delay(way)
	}
	lost := make(chan error, 1)
	go func() {
		reply, err := first.ask(context.Background(), "a", opts...)
		if err == nil && reply.State == driver.Granted {
			err = errors.New("granted to the first")
		}
		lost <- err
	}()
	synctest.Wait()
	for _, i := range slow {
		all[i].delay(0)
	}
	time.Sleep(time.Millisecond)
	second.acquire("a", driver.Granted, opts...)
	if err := <-lost; !errors.Is(err, driver.ErrNoQuorum) {
		t.Fatalf("%v, want a round that is lost", err)
	}
	return second
}

func TestAcquire_HR_A6_ALostRoundSparesWhatAnotherProcessWasGranted(t *testing.T) {
	late := 2 * quorumdriver.DefaultTimeout
	for name, c := range map[string]struct {
		slow []int
		way  time.Duration
		opts []option
	}{
		"a try that comes first to one node":         {slow: []int{1, 2}, way: late},
		"a try that comes last, and is not answered": {slow: []int{0, 1, 2}, way: quorumdriver.DefaultTimeout * 3 / 4},
		"a try that comes last everywhere":           {slow: []int{0, 1, 2}, way: late},
		"a waiter that comes first to one node":      {slow: []int{1, 2}, way: late, opts: []option{waits}},
		"a waiter that comes last":                   {slow: []int{0, 1, 2}, way: quorumdriver.DefaultTimeout * 3 / 4, opts: []option{waits}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(3)
				second := twice(t, all, c.slow, c.way, c.opts...)
				time.Sleep(2 * late) // until the first request has arrived everywhere
				second.renewed("a", driver.Granted)
				quorumOf(t, all).acquire("b", driver.Busy)
				wantInside(t, all, "a")
			})
		})
	}
}

// Votes of a visit that has gone are not prolonged when waiters with the same ids ask again.
func TestAcquire_HR_A6_VotesThatNobodyEndsStopNobodyForLongerThanTheyLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		for i, s := range all {
			_, _ = s.store.Acquire(t.Context(), driver.Request{Key: "k", ID: fmt.Sprint("a", i), TTL: ttl, Visit: "gone"})
		}
		granted := make(chan string, len(all))
		for i := range all {
			a, id := quorumOf(t, all), fmt.Sprint("a", i)
			go func() {
				for start := time.Now(); time.Since(start) < time.Minute; {
					reply, err := a.ask(context.Background(), id, waits)
					if err == nil && reply.State == driver.Granted {
						granted <- id
						return
					}
					time.Sleep(300*time.Millisecond + reply.RetryAfter)
				}
				granted <- ""
			}()
		}
		start := time.Now()
		if id := <-granted; id == "" || time.Since(start) > 2*ttl {
			t.Errorf("%q was granted it after %v", id, time.Since(start))
		}
		for range len(all) - 1 {
			<-granted
		}
	})
}

// A node has forgotten a lease, and the quorum acquires it there again by the visit of the
// last renewal. So the late release of an earlier visit has no effect there either.
func TestRenew_HR_A5_ANodeThatIsJoinedAgainSparesWhatWasTold(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted, visit("gone"))
		synctest.Wait()
		all[2].free(t, "a")
		ask.Renew(t, a.s, driver.Granted, driver.Ref{Key: "k", ID: "a", TTL: ttl, Visit: "reported"})
		synctest.Wait()
		wantInside(t, all[2:], "a")
		a.undo("a", "gone", driver.Busy)
		synctest.Wait()
		wantInside(t, all, "a")
	})
}
