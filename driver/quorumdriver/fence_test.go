package quorumdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

func TestTokens_Q6_RiseOverEveryPairOfMajorities(t *testing.T) {
	const n, need = 5, 3
	inBubble(t, n, func(t *testing.T, all []*server, a asker) {
		for i, s := range all {
			s.skew = time.Duration(n-i) * time.Minute
		}
		last := int64(0)
		for mask := range 1 << n {
			down := 0
			for i, s := range all {
				if s.restart(false); mask&(1<<i) != 0 {
					s.kill()
					down++
				}
			}
			if n-down < need {
				continue
			}
			got := a.acquire("a", driver.Granted).Token
			if got <= last {
				t.Errorf("with nodes %05b down token %d follows %d", mask, got, last)
			}
			last = got
			a.release("a", driver.Released)
			time.Sleep(ttl) // until the leases at a dead node have expired
		}
	})
}

func TestTokens_AreWrittenBackBeforeTheyAreHandedOut(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		all[0].skew = time.Hour
		token := a.acquire("a", driver.Granted).Token
		have := 0
		for _, s := range all {
			if snap, _ := s.store.Inspect(t.Context(), "k"); len(snap.Holders) == 1 && snap.Holders[0].Token == token && snap.Token >= token {
				have++
			}
		}
		if have < 2 {
			t.Errorf("%d nodes have token %d", have, token)
		}
		if reply := a.renewed("a", driver.Granted); reply.Token != token {
			t.Errorf("token %d after the renewal, %d before", reply.Token, token)
		}
	})
}

func TestTokens_OfANodeThatCannotBeWrittenToAreNotHandedOut(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		all[0].skew = 48 * time.Hour // further ahead than the other nodes follow
		all[2].kill()
		if _, err := a.ask(t.Context(), "a"); err == nil {
			t.Fatal("granted with a token that no majority has")
		}
		wantInside(t, all[:2])
	})
}

// ahead returns three nodes. The token of the last node is ahead of the other tokens, and
// this node answers the first request late.
func ahead(t *testing.T) (all []*server, a asker, first driver.Reply) {
	all = servers(3)
	a = quorumOf(t, all).begun()
	all[2].hold(t, "x", ttl)
	ref := driver.Ref{Key: "k", ID: "x", TTL: ttl, Token: all[2].inside(t)[0].Token + time.Hour.Microseconds()}
	all[2].store.Renew(t.Context(), []driver.Ref{ref}, func(int, driver.Reply, error) {})
	all[2].free(t, "x")
	all[2].delay(20 * time.Millisecond)
	first = a.acquire("a", driver.Granted)
	all[2].delay(0)
	return all, a, first
}

// wantTokenAt checks the token of the lease "a" at the server.
func (s *server) wantTokenAt(t *testing.T, want int64) {
	t.Helper()
	if in := s.inside(t); len(in) != 1 || in[0].ID != "a" || in[0].Token != want {
		t.Errorf("%+v; want a inside with token %d", in, want)
	}
}

func TestAcquire_HR_B4_AskingAgainAnswersTheTokenThatWasTold(t *testing.T) {
	for _, down := range []int{-1, 0, 1, 2} {
		for _, settled := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				all, a, first := ahead(t)
				if settled {
					time.Sleep(time.Second)
				} else {
					down = -1 // the node that is ahead has not been levelled
				}
				if down >= 0 {
					all[down].kill()
				}
				for name, other := range map[string]asker{"its process": a, "another process": quorumOf(t, all)} {
					if got := other.acquire("a", driver.Granted); got.Token != first.Token {
						t.Errorf("asked again by %s with node %d down: token %d, want %d", name, down+1, got.Token, first.Token)
					}
					if got := other.renewed("a", driver.Granted); got.Token != first.Token {
						t.Errorf("renewed by %s with node %d down: token %d, want %d", name, down+1, got.Token, first.Token)
					}
				}
			})
		}
	}
}

func TestAcquire_HR_B4_ANodeThatIsAheadIsLevelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, a, first := ahead(t)
		time.Sleep(time.Second)
		for _, s := range all {
			s.wantTokenAt(t, first.Token)
		}
		// A renewal levels a node with a token that gets ahead later.
		ref := driver.Ref{Key: "k", ID: "a", TTL: ttl, Token: first.Token + 1000}
		all[1].store.Renew(t.Context(), []driver.Ref{ref}, func(int, driver.Reply, error) {})
		if got := a.renewed("a", driver.Granted); got.Token != first.Token {
			t.Errorf("renewed: token %d, want %d", got.Token, first.Token)
		}
		synctest.Wait()
		all[1].wantTokenAt(t, first.Token)
		a.release("a", driver.Released)
		synctest.Wait()
		// A majority may answer without the node that was ahead: no caller has received its token.
		if next := a.acquire("b", driver.Granted); next.Token <= first.Token {
			t.Errorf("token %d follows %d", next.Token, first.Token)
		}
	})
}

// daysAhead is a node with a counter that a wrong clock has raised, or a node that answers late.
type daysAhead struct {
	*memdriver.Driver
	ahead, late time.Duration
}

func (a daysAhead) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	time.Sleep(a.late)
	reply, err := a.Driver.Acquire(ctx, req)
	reply.Token += a.ahead.Microseconds()
	return reply, err
}

// No other node takes over such a token.
func TestTokens_OfANodeDaysAheadOfItsClockAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := memdriver.New()
		d, err := quorumdriver.New([]driver.Driver{
			daysAhead{wrong, 72 * time.Hour, 0}, memdriver.New(), daysAhead{memdriver.New(), 0, 100 * time.Millisecond},
		})
		noError(t, err)
		defer d.Close()
		reply, err := d.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: ttl})
		if err != nil || reply.State != driver.Granted || time.Until(time.UnixMicro(reply.Token)) > time.Hour {
			t.Errorf("%+v, %v", reply, err)
		}
		if reply, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil || reply.State != driver.Released {
			t.Errorf("%+v, %v", reply, err)
		}
		synctest.Wait()
		if snap, _ := wrong.Inspect(t.Context(), "k"); len(snap.Holders) > 0 {
			t.Errorf("its lease stays: %+v", snap.Holders)
		}
	})
}
