package quorumdriver_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
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
				t.Fatalf("with nodes %05b down token %d follows %d", mask, got, last)
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

func TestTokens_AreZeroWithoutFencing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, _ []*server, a asker) {
		if got := a.acquire("a", driver.Granted).Token; got != 0 {
			t.Errorf("token %d", got)
		}
		if got := a.renewed("a", driver.Granted).Token; got != 0 {
			t.Errorf("token %d", got)
		}
	}, quorumdriver.WithoutFencing())
}
