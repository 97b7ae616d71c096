package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// A request during a release finds the lock held. But if a majority does not answer the
// release, the outcome is unknown.
func TestAcquire_BehindAReleaseThatNobodyAnswersIsNotRefused(t *testing.T) {
	for range 20 { // the outcome depends on the order of the calls
		inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
			a.acquire("a", driver.Granted)
			for _, server := range all[1:] {
				server.stop()
				defer server.cont()
			}
			go func() { _, _ = a.s.Release(context.Background(), driver.Ref{Key: "k", ID: "a"}) }()
			synctest.Wait()
			errs := make(chan error)
			const askers = 10 // more than maxGateWaiters
			time.Sleep(200 * time.Millisecond)
			for i := range askers {
				go func() {
					reply, err := a.ask(context.Background(), fmt.Sprint("b", i), lasting(100*time.Millisecond))
					if err == nil {
						err = fmt.Errorf("state %d", reply.State)
					}
					errs <- err
				}()
			}
			for range askers {
				if err := <-errs; !errors.Is(err, driver.ErrNoQuorum) {
					t.Errorf("%v, want driver.ErrNoQuorum", err)
				}
			}
		})
	}
}

// A cancelled call is no evidence about a node: the quorum still does not wait for a node
// that hangs.
func TestNode_StaysKnownToHangWhenACallIsGivenUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		all[1].stop()
		all[2].stop()
		defer all[2].cont()
		look := func(limit time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			_, err := a.s.Inspect(ctx, "k")
			return time.Since(start), err
		}
		for _, limit := range []time.Duration{time.Minute, 10 * time.Millisecond} {
			if _, err := look(limit); err == nil {
				t.Fatal("one of three nodes is no majority")
			}
			synctest.Wait()
		}
		all[1].cont()
		if took, err := look(time.Minute); took > 0 || err != nil {
			t.Errorf("a majority answers at once, the third node hangs: after %v, %v", took, err)
		}
	})
}

// Every acquire reaches the nodes in quarantine. Reading their marks may take time, and the
// reads must not pile up.
func TestGuard_LooksAtTheMarksOnceAtATime(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, all []*server, a asker) {
		a.begun()
		for _, s := range all {
			s.intercept(func(ctx context.Context, verb intercept.Verb) error {
				if verb == intercept.Marked {
					<-ctx.Done()
				}
				return ctx.Err()
			})
		}
		all[4].restart(true)
		a.acquire("a", driver.Granted)
		a.release("a", driver.Released)
		before := runtime.NumGoroutine()
		for i := range 500 {
			key := func(r *driver.Request) { r.Key = fmt.Sprint("k", i) } // the node has no token of this key
			a.acquire("a", driver.Granted, key)
			synctest.Wait()
		}
		if more := runtime.NumGoroutine() - before; more > 50 {
			t.Errorf("%d goroutines more", more)
		}
	})
}

// A holder that is uncontended may release the lock in a shorter way.
func TestAcquire_TellsWhetherTheHolderIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		var received []bool
		first, yes := true, true
		a := open(t, []driver.Driver{lonely(all[0], &first, &received), lonely(all[1], &yes, new([]bool)), lonely(all[2], &yes, new([]bool))})
		for _, alone := range []bool{true, false} {
			first = alone
			all[2].stop()
			if got := a.acquire("a", driver.Granted); got.Uncontended != alone {
				t.Errorf("Uncontended is %v at the nodes, %v in the reply", alone, got.Uncontended)
			}
			if got := a.renewed("a", driver.Granted); got.Uncontended != alone {
				t.Errorf("renewed: Uncontended is %v at the nodes, %v in the reply", alone, got.Uncontended)
			}
			reply, err := a.s.Release(t.Context(), driver.Ref{Key: "k", ID: "a", Uncontended: alone})
			if err != nil || reply.State != driver.Released {
				t.Fatalf("%+v, %v", reply, err)
			}
			all[2].cont()
			synctest.Wait()
		}
		if len(received) != 2 || !received[0] || received[1] {
			t.Errorf("a node received Uncontended %v", received)
		}
	})
}

// lonely returns a node that sets Uncontended to alone in its replies, and records it from releases.
func lonely(s *server, alone *bool, received *[]bool) driver.Driver {
	d := intercept.New(s.client(), func(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
		if m.Verb == intercept.Release {
			*received = append(*received, m.Refs[0].Uncontended)
		}
		return send(ctx)
	})
	d.Change = func(m *intercept.Message, reply *driver.Reply) {
		reply.Uncontended = *alone && m.Verb != intercept.Release
	}
	return d
}

// Acquiring and releasing a free lock takes two round trips, even if a minority of the nodes
// is slow or was slow before.
func TestQuorum_AFreePairIsTwoRoundTrips(t *testing.T) {
	for name, opts := range map[string][]quorumdriver.Option{"fenced": nil, "unfenced": {quorumdriver.WithoutFencing()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const way = 5 * time.Millisecond
				all := servers(5)
				now := time.Now() // held, so that the tokens are consecutive, as Redis has them without contention
				for _, s := range all {
					s.store, s.consecutive = teststore.NewTable(func() time.Time { return now }).Join(), true
					_ = s.store.Mark(t.Context(), driver.Mark{}, "")
				}
				delay := func(d time.Duration, which ...int) {
					for _, i := range which {
						all[i].delay(d)
					}
				}
				a := quorumOf(t, all, opts...).begun()
				n := 0
				pair := func() {
					t.Helper()
					n++
					start := time.Now()
					a.acquire(fmt.Sprint("a", n), driver.Granted)
					a.release(fmt.Sprint("a", n), driver.Released)
					if took := time.Since(start); took != 4*way {
						t.Errorf("pair %d took %v, and one node %v", n, took, 4*way)
					}
				}
				delay(way, 0, 1, 2, 3, 4)
				for slow := range all {
					delay(40*way, slow)
					for range 3 { // the slow node receives only the first
						pair()
					}
					delay(way, slow)
					time.Sleep(time.Second)
					pair() // brings the slow node up to date
					time.Sleep(time.Second)
					delay(2*way, (slow+1)%5, (slow+2)%5)
					pair() // needs that node
					delay(way, 0, 1, 2, 3, 4)
					time.Sleep(time.Second)
				}
			})
		})
	}
}
