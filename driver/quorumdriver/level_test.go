package quorumdriver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

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
		// A renewal levels a node whose token gets ahead later.
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

// A lease expired, and another client had the lock in between. The next grant to its id is a
// new one, although the process has not noticed the expiry.
func TestAcquire_HR_B4_ALeaseThatWasOverGetsATokenOfItsOwn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, p asker) {
		q := quorumOf(t, all)
		p.acquire("a", driver.Granted)
		time.Sleep(2 * ttl)
		second := q.acquire("b", driver.Granted)
		q.release("b", driver.Released)
		synctest.Wait()
		if again := p.acquire("a", driver.Granted); again.Token <= second.Token {
			t.Errorf("token %d after %d", again.Token, second.Token)
		}
	})
}
