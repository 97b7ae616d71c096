package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// A call whose context has ended takes a free turn, and then returns the context's error
// instead of one about another call.
func TestTurn_IsTakenIfItIsFree(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		noError(t, new(quorumdriver.Driver).TakeTurn(ctx))
	}
}

// An acquire may reach a node long after the release of its lease. A node that hangs with a request
// gets its release, too, although other calls hang there.
func TestRelease_HR_A6_AnAcquireThatComesLateRevivesNothing(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint("with ", others, " other calls"), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
				a.begun()
				all[2].delay(5 * quorumdriver.DefaultTimeout)
				a.acquire("a", driver.Granted)
				for range others {
					time.Sleep(quorumdriver.DefaultTimeout / 2)
					a.acquire("other", driver.Granted, func(r *driver.Request) { r.Key = "other" })
				}
				all[2].delay(0)
				a.release("a", driver.Released)
				time.Sleep(10 * quorumdriver.DefaultTimeout)
				wantInside(t, all[2:])
			})
		})
	}
}

// The release of a lost round may also arrive after the same lease was granted. A node that may
// still carry it out has no vote.
func TestAcquire_AReleaseThatComesLateTakesNothingAway(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		for _, s := range all[1:] {
			s.hold(t, "other", time.Hour)
			s.delay(5 * time.Millisecond)
		}
		// The first node grants it, and does not answer the release.
		go func() {
			time.Sleep(5 * time.Millisecond)
			all[0].stop()
		}()
		a.acquire("a", driver.Busy, waits)
		wantInside(t, all[:1], "a")
		for _, s := range all[1:] {
			s.delay(0)
		}
		all[1].free(t, "other")
		done := make(chan driver.Reply, 1)
		go func() {
			reply, _ := a.ask(context.Background(), "a", waits)
			done <- reply
		}()
		time.Sleep(time.Millisecond)
		all[0].cont()
		if reply := <-done; reply.State == driver.Granted {
			t.Errorf("granted by a node that has yet to carry out its release: %+v", reply)
		}
		time.Sleep(time.Second)
	})
}

// A majority has not answered a release. When it is repeated, a node that has carried it out
// still counts.
func TestRelease_P8_ARepetitionCountsTheNodesThatHaveReleased(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[1].kill()
		all[2].kill()
		if reply, err := a.s.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); !errors.Is(err, driver.ErrNoQuorum) {
			t.Errorf("%+v, %v; want ErrNoQuorum", reply, err)
		}
		all[1].restart(false)
		a.release("a", driver.Released)
	})
}

// A renewal of a waiter may still be on its way when the waiter gives up its ticket.
func TestRenew_OfAWaiterThatHasGoneTakesNothing(t *testing.T) {
	for i := range 50 {
		inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
			holder := quorumOf(t, all)
			holder.acquire("holder", driver.Granted)
			sub, err := a.s.Watch(func(driver.Hint) {})
			noError(t, err)
			defer sub.Close()
			a.acquire("a", driver.Busy, waits)
			holder.release("holder", driver.Released)
			var both sync.WaitGroup
			both.Go(func() {
				if i%2 == 0 {
					runtime.Gosched()
				}
				refs := []driver.Ref{{Key: "k", ID: "a", TTL: ttl, TicketTTL: time.Minute}}
				a.s.Renew(context.Background(), refs, func(int, driver.Reply, error) {})
			})
			both.Go(func() {
				if _, err := a.s.Release(context.Background(), driver.Ref{Key: "k", ID: "a"}); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			time.Sleep(time.Second)
			wantInside(t, all)
		})
	}
}

// relay returns a node behind a service. The store does not answer the service's first request;
// asked again it grants, and the first request arrives later.
func relay(s *server, late time.Duration) driver.Driver {
	d := intercept.New(s.client(), func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
		if m.Verb == intercept.Acquire {
			defer time.AfterFunc(late, func() { _ = send(context.WithoutCancel(ctx)) })
		}
		return send(ctx)
	})
	d.Change = func(m *intercept.Message, reply *driver.Reply) { reply.InFlight = m.Verb == intercept.Acquire }
	return d
}

// behindServices plays f on a quorum of three services, of which first requests are late.
func behindServices(t *testing.T, late time.Duration, f func(t *testing.T, all []*server, a asker)) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		var nodes []driver.Driver
		for _, s := range all {
			nodes = append(nodes, relay(s, late))
		}
		f(t, all, open(t, nodes))
	})
}

// A request of a service that reaches its store after the release does not lock again.
func TestRelease_HR_A2_ARequestThatANodeHasOnItsWayRevivesNothing(t *testing.T) {
	behindServices(t, time.Second, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		a.release("a", driver.Released)
		time.Sleep(2 * time.Second)
		wantInside(t, all)
		a.acquire("b", driver.Granted)
		time.Sleep(2 * time.Second) // until the late requests have arrived
	})
}

// Such a request does not keep the quorum from asking the node again, and its grant is not
// treated as the grant of another client.
func TestAcquire_ANodeThatHasARequestOnItsWayIsAskedAgain(t *testing.T) {
	behindServices(t, time.Millisecond, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		time.Sleep(time.Second)
		if reply := a.acquire("a", driver.Granted); !reply.Replayed {
			t.Errorf("asked again by its holder: %+v", reply)
		}
		a.renewed("a", driver.Granted)
		wantInside(t, all, "a")
		time.Sleep(time.Second)
	})
}
