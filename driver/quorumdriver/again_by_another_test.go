package quorumdriver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// wantUnknown fails the test unless err means that the outcome is unknown.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrNoQuorum) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want an error that leaves the outcome unknown", err)
	}
}

// refuseLate makes the servers refuse acquires, each after a while.
func refuseLate(all []*server) {
	for _, s := range all {
		s.intercept(func(_ context.Context, verb intercept.Verb) error {
			if verb != intercept.Acquire {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
			return errRefused
		})
	}
}

// Two visits of one process ask for the same lease, and one of them is undone. This does not
// change the round of the other visit: if that round is lost, its votes are still undone.
func TestAcquire_HR_A6_AVisitThatIsUndoneLeavesTheOthersVotesToBeUndone(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct{ pause, limit time.Duration }{
		"both before the vote": {0, 60 * ms},
		"one before the vote":  {0, 120 * ms},
		"both after the vote":  {150 * ms, 270 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
				a.begun()
				all[0].delay(50 * ms)
				all[1].cutOff(true)
				all[2].cutOff(true)
				lost := make(chan error, 1)
				ctx, cancel := context.WithTimeout(context.Background(), c.limit)
				defer cancel()
				go func() {
					_, err := a.ask(ctx, "a", visit("one"))
					lost <- err
				}()
				synctest.Wait()
				time.Sleep(c.pause)
				other, end := context.WithTimeout(context.Background(), 200*ms)
				defer end()
				_, _ = a.s.Release(other, driver.Ref{Key: "k", ID: "a", Visit: "two"})
				if err := <-lost; err == nil {
					t.Error("granted by one node of three")
				}
				time.Sleep(2 * quorumdriver.DefaultTimeout)
				wantInside(t, all[:1])
			})
		})
	}
}

// While a release of another visit is under way at a node that has voted, the vote is not
// undone yet.
func TestAcquire_P8_ALostRoundThatWaitsForAnothersReleaseIsUnknown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		refuseLate(all[1:])
		released := make(chan struct{})
		go func() {
			defer close(released)
			time.Sleep(10 * time.Millisecond)
			all[0].delay(20 * time.Millisecond)
			_, _ = a.s.Release(context.Background(), driver.Ref{Key: "k", ID: "a", Visit: "two"})
		}()
		_, err := a.ask(t.Context(), "a", visit("one"))
		wantUnknown(t, err)
		<-released
		time.Sleep(quorumdriver.DefaultTimeout)
		wantInside(t, all[:1])
	})
}

// A round that gets no majority does not end a lease that is held, and cannot undo a vote that also
// belongs to another process. With another holder at one node and one node away, a majority may
// still have the lease. So the error does not mean that the lease was refused.
func TestAcquire_P8_ALostRoundIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, all []*server, a asker)
		dead   []int
		inside int    // a node where the lease stays
		visit  string // that asks; the visit without a name has the lease
	}{
		"of a lease that is held": {func(_ *testing.T, _ []*server, a asker) {
			a.acquire("a", driver.Granted)
		}, []int{1, 2}, 0, ""},
		"of a lease that one node refuses": {func(t *testing.T, all []*server, a asker) {
			all[0].hold(t, "other", time.Hour)
			a.acquire("a", driver.Granted)
		}, []int{2}, 1, ""},
		"that another process shares": {func(t *testing.T, all []*server, _ asker) {
			all[0].hold(t, "a", ttl, "another")
		}, []int{1, 2}, 0, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
				c.before(t, all, a.begun())
				synctest.Wait()
				for _, i := range c.dead {
					all[i].kill()
				}
				_, err := a.ask(t.Context(), "a", visit(c.visit))
				wantUnknown(t, err)
				synctest.Wait()
				wantInside(t, all[c.inside:c.inside+1], "a")
				for _, i := range c.dead {
					all[i].restart(false)
				}
				if c.visit == "" {
					a.renewed("a", driver.Granted)
				}
			})
		})
	}
}

// A lease ended, another lease followed, and then another process got the first lease again.
// Every process answers with the token of the last grant.
func TestTokens_P4_ALeaseThatEndedAndWasGrantedElsewhereHasItsNewToken(t *testing.T) {
	for name, ask := range map[string]func(asker) driver.Reply{
		"asked for":  func(a asker) driver.Reply { return a.acquire("a", driver.Granted) },
		"renewed":    func(a asker) driver.Reply { return a.renewed("a", driver.Granted) },
		"downgraded": func(a asker) driver.Reply { return a.acquire("a", driver.Granted, downgrades) },
	} {
		for how, pass := range map[string]func(*testing.T, []*server){
			"": func(*testing.T, []*server) { time.Sleep(2 * ttl) },
			" after a suspension of this machine": func(t *testing.T, all []*server) {
				clock.Advance(2 * ttl)
				for _, s := range all { // time has passed there, too
					s.free(t, "a")
				}
			},
		} {
			t.Run(name+how, func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, all []*server, one asker) {
					one.acquire("a", driver.Granted)
					synctest.Wait()
					pass(t, all)
					between := quorumOf(t, all).succeeds()
					if reply := ask(one); reply.Token <= between {
						t.Errorf("token %d, after %d", reply.Token, between)
					}
				})
			})
		}
	}
}

// succeeds has the lock as "b", then acquires it as "a", and returns the token of "b".
func (a asker) succeeds() int64 {
	a.Helper()
	between := a.acquire("b", driver.Granted).Token
	a.release("b", driver.Released)
	synctest.Wait()
	a.acquire("a", driver.Granted)
	synctest.Wait()
	return between
}

// The end of the last grant counts, not the end of an earlier grant, which was longer and was lost.
func TestTokens_P4_ALeaseThatEndedHasItsNewTokenWhateverItHadBefore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, one asker) {
		two := quorumOf(t, all)
		all[2].cutOff(true)
		one.acquire("a", driver.Granted, lasting(20*ttl))
		time.Sleep(quorumdriver.DefaultTimeout)
		all[2].cutOff(false)
		synctest.Wait()
		two.release("a", driver.Released)
		synctest.Wait()
		one.renewed("a", driver.Gone)
		one.acquire("a", driver.Granted)
		time.Sleep(2 * ttl)
		between := two.succeeds()
		if reply := one.renewed("a", driver.Granted); reply.Token <= between {
			t.Errorf("token %d, after %d", reply.Token, between)
		}
	})
}

// The lease ends while a round asks for it again. If that round is lost, its votes are still
// undone.
func TestAcquire_P8_ARoundDuringWhichTheLeaseEndsIsUndone(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		all[1].hold(t, "other", time.Hour)
		a.acquire("a", driver.Granted)
		synctest.Wait()
		time.Sleep(ttl - ttl/50) // it ends before the node that is cut off is given up
		all[2].cutOff(true)
		_, err := a.ask(t.Context(), "a")
		time.Sleep(100 * time.Millisecond)
		if err == nil {
			wantInside(t, all[:1])
		} else {
			wantUnknown(t, err)
		}
	})
}

// One node does not answer a downgrade, and another has forgotten the lease. The outcome is
// unknown: the lock is not reported as held by another client, and the lease is not lost.
func TestDowngrade_P8_WithoutAMajorityThatRefusesIsUnknown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		token := a.acquire("a", driver.Granted).Token
		synctest.Wait()
		all[0].free(t, "a")
		all[2].kill()
		reply, err := a.ask(t.Context(), "a", downgrades)
		if err == nil {
			t.Errorf("%+v", reply)
		}
		wantUnknown(t, err)
		all[2].restart(false)
		if got := a.renewed("a", driver.Granted); got.Token != token {
			t.Errorf("token %d, want %d", got.Token, token)
		}
	})
}

// Another process gets a lease that this one was refused. This one then releases it at all nodes: it does not know
// which of them have granted it meanwhile.
func TestRelease_P8_OfALeaseThatAnotherProcessGot(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		for _, s := range all {
			s.hold(t, "other", time.Hour)
		}
		a.acquire("a", driver.Busy, visit("one"))
		_, err := a.s.Release(t.Context(), driver.Ref{Key: "k", ID: "a", Visit: "one"})
		noError(t, err)
		for _, s := range all {
			s.free(t, "other")
			s.hold(t, "a", ttl, "two")
		}
		a.release("a", driver.Released)
		synctest.Wait() // the last node
		wantInside(t, all)
	})
}
