package quorumdriver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// asked asks for the lease "a" by a visit, and returns the answer.
func (a asker) asked(ctx context.Context, visit string) (driver.Reply, error) {
	return a.s.Acquire(ctx, driver.Request{Key: "k", ID: "a", TTL: ttl, Visit: visit})
}

// unknown fails the test unless err means that the outcome is unknown.
func (a asker) unknown(err error) {
	a.Helper()
	if !errors.Is(err, driver.ErrNoQuorum) || errors.Is(err, driver.ErrUnavailable) {
		a.Errorf("%v, want an error that leaves the outcome unknown", err)
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
				for _, s := range all[1:] {
					s.set(func(s *server) { s.cut = true })
				}
				lost := make(chan error, 1)
				ctx, cancel := context.WithTimeout(context.Background(), c.limit)
				defer cancel()
				go func() {
					_, err := a.asked(ctx, "one")
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
				wantInside(t, all[0])
			})
		})
	}
}

// refusing is a node that refuses requests after a while.
type refusing struct {
	client
	after time.Duration
}

func (r refusing) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	time.Sleep(r.after)
	return driver.Reply{}, errRefused
}

// While a release of another visit is under way at a node that has voted, the vote is not
// undone yet.
func TestAcquire_P8_ALostRoundThatWaitsForAnothersReleaseIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		asker{t, quorumOf(t, all)}.begun()
		a := asker{t, open(t, []driver.Driver{client{all[0]}, refusing{client{all[1]}, 20 * time.Millisecond}, refusing{client{all[2]}, 20 * time.Millisecond}})}
		released := make(chan struct{})
		go func() {
			defer close(released)
			time.Sleep(10 * time.Millisecond)
			all[0].delay(20 * time.Millisecond)
			_, _ = a.s.Release(context.Background(), driver.Ref{Key: "k", ID: "a", Visit: "two"})
		}()
		_, err := a.asked(t.Context(), "one")
		a.unknown(err)
		<-released
		time.Sleep(quorumdriver.DefaultTimeout)
		wantInside(t, all[0])
	})
}

// A repeated request that gets no majority does not end the lease, and its error does not mean
// that the lease was refused.
func TestAcquire_P8_ALostRoundOfALeaseThatIsHeldIsUnknown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[1].kill()
		all[2].kill()
		_, err := a.asked(t.Context(), "")
		a.unknown(err)
		all[1].restart(false)
		all[2].restart(false)
		a.renewed("a", driver.Granted)
	})
}

// A vote that also belongs to another process cannot be undone, so the error leaves the outcome
// unknown.
func TestAcquire_P8_ALostRoundThatAnotherProcessSharesIsUnknown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		if _, err := all[0].store.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: ttl, Visit: "another"}); err != nil {
			t.Fatal(err)
		}
		all[1].kill()
		all[2].kill()
		_, err := a.asked(t.Context(), "one")
		a.unknown(err)
		wantInside(t, all[0], "a")
	})
}

// One node has another holder, and one does not answer: a majority may still have the lease,
// so it is not lost.
func TestAcquire_P7_ALeaseThatIsAskedForAgainIsLostOnlyIfAMajorityRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		if _, err := all[0].store.Acquire(t.Context(), driver.Request{Key: "k", ID: "other", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		a := asker{t, quorumOf(t, all)}
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[2].kill()
		_, err := a.asked(t.Context(), "")
		a.unknown(err)
		synctest.Wait()
		all[2].restart(false)
		wantInside(t, all[1], "a")
		a.renewed("a", driver.Granted)
	})
}

// A lease ended, another lease followed, and then another process got the first lease again.
// Every process answers with the token of the last grant.
func TestTokens_P4_ALeaseThatEndedAndWasGrantedElsewhereHasItsNewToken(t *testing.T) {
	for name, ask := range map[string]func(asker) driver.Reply{
		"asked for": func(a asker) driver.Reply { return a.acquire("a", driver.Granted) },
		"renewed":   func(a asker) driver.Reply { return a.renewed("a", driver.Granted) },
		"downgraded": func(a asker) driver.Reply {
			return a.acquire("a", driver.Granted, func(r *driver.Request) { r.Downgrade, r.Mode = true, driver.Shared })
		},
	} {
		for how, pass := range map[string]func(*testing.T, []*server){
			"": func(*testing.T, []*server) { time.Sleep(2 * ttl) },
			" after a suspension of this machine": func(t *testing.T, all []*server) {
				clock.Advance(2 * ttl)
				for _, s := range all { // time has passed there, too
					if _, err := s.store.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil {
						t.Fatal(err)
					}
				}
			},
		} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all := servers(3)
					one, two := asker{t, quorumOf(t, all)}, asker{t, quorumOf(t, all)}
					one.acquire("a", driver.Granted)
					synctest.Wait()
					pass(t, all)
					between := two.acquire("b", driver.Granted)
					two.release("b", driver.Released)
					synctest.Wait()
					two.acquire("a", driver.Granted)
					synctest.Wait()
					if reply := ask(one); reply.Token <= between.Token {
						t.Errorf("token %d, after %d", reply.Token, between.Token)
					}
				})
			})
		}
	}
}

// The end of the last grant counts, not the end of an earlier grant, which was longer and was lost.
func TestTokens_P4_ALeaseThatEndedHasItsNewTokenWhateverItHadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		one, two := asker{t, quorumOf(t, all)}, asker{t, quorumOf(t, all)}
		all[2].set(func(s *server) { s.cut = true })
		one.acquire("a", driver.Granted, func(r *driver.Request) { r.TTL = 20 * ttl })
		time.Sleep(quorumdriver.DefaultTimeout)
		all[2].set(func(s *server) { s.cut = false })
		synctest.Wait()
		two.release("a", driver.Released)
		synctest.Wait()
		one.renewed("a", driver.Gone)
		one.acquire("a", driver.Granted)
		time.Sleep(2 * ttl)
		between := two.acquire("b", driver.Granted)
		two.release("b", driver.Released)
		synctest.Wait()
		two.acquire("a", driver.Granted)
		synctest.Wait()
		if reply := one.renewed("a", driver.Granted); reply.Token <= between.Token {
			t.Errorf("token %d, after %d", reply.Token, between.Token)
		}
	})
}

// The lease ends while a round asks for it again. If that round is lost, its votes are still
// undone.
func TestAcquire_P8_ARoundDuringWhichTheLeaseEndsIsUndone(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		if _, err := all[1].store.Acquire(t.Context(), driver.Request{Key: "k", ID: "other", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		a.acquire("a", driver.Granted)
		synctest.Wait()
		time.Sleep(ttl - ttl/50) // it ends before the node that is cut off is given up
		all[2].set(func(s *server) { s.cut = true })
		_, err := a.asked(t.Context(), "")
		time.Sleep(100 * time.Millisecond)
		if err == nil {
			wantInside(t, all[0])
		} else {
			a.unknown(err)
		}
	})
}

// turning is a node that refuses requests, after a while, once now is set.
type turning struct {
	client
	now *atomic.Bool
}

func (r turning) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if r.now.Load() {
		time.Sleep(20 * time.Millisecond)
		return driver.Reply{}, errRefused
	}
	return r.client.Acquire(ctx, req)
}

// The same, but another call of the process repeats the request, and so detects the end first.
func TestAcquire_P8_ARoundDuringWhichAnotherSeesTheEndIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		asker{t, quorumOf(t, all)}.begun()
		var now atomic.Bool
		a := asker{t, open(t, []driver.Driver{client{all[0]}, turning{client{all[1]}, &now}, turning{client{all[2]}, &now}})}
		a.acquire("a", driver.Granted)
		synctest.Wait()
		time.Sleep(ttl - ttl/100 - 12*time.Millisecond) // its end is near
		now.Store(true)
		go func() {
			time.Sleep(15 * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, _ = a.asked(ctx, "")
		}()
		_, err := a.asked(t.Context(), "")
		time.Sleep(100 * time.Millisecond)
		if errors.Is(err, driver.ErrUnavailable) {
			wantInside(t, all[0])
		}
	})
}

// One node does not answer a downgrade, and another has forgotten the lease. The outcome is
// unknown: the lock is not reported as held by another client, and the lease is not lost.
func TestDowngrade_P8_WithoutAMajorityThatRefusesIsUnknown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		token := a.acquire("a", driver.Granted).Token
		synctest.Wait()
		if _, err := all[0].store.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil {
			t.Fatal(err)
		}
		all[2].kill()
		reply, err := a.s.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: ttl, Mode: driver.Shared, Downgrade: true})
		if err == nil {
			t.Errorf("%+v", reply)
		}
		a.unknown(err)
		all[2].restart(false)
		if got := a.renewed("a", driver.Granted); got.Token != token {
			t.Errorf("token %d, want %d", got.Token, token)
		}
	})
}
