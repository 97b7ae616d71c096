package quorumdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// A lease has expired, and another client got the lock. The first id now waits, and a
// renewal grants it the lock again: this is a new grant, with a greater token.
func TestRenew_Q6_ALeaseThatWasLostIsLetInAgainWithATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		for range 3 {
			nodes = append(nodes, memdriver.New())
		}
		s := open(t, nodes)
		sub, err := s.Watch(func(driver.Hint) {})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		ask := func(id string, wait time.Duration) driver.Reply {
			reply, err := s.Acquire(context.Background(), driver.Request{
				Key: "k", ID: id, TTL: time.Second, TicketTTL: wait, ConfirmWindow: time.Second, HintAddress: sub.Address(),
			})
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		first := ask("a", 0)
		time.Sleep(2 * time.Second) // the quorum has not noticed the end of the lease
		second := ask("b", 0)
		if first.State != driver.Granted || second.State != driver.Granted || second.Token <= first.Token {
			t.Fatalf("%+v, %+v", first, second)
		}
		if reply := ask("a", time.Minute); reply.State == driver.Granted {
			t.Fatalf("granted although there is a holder: %+v", reply)
		}
		if _, err := s.Release(context.Background(), driver.Ref{Key: "k", ID: "b"}); err != nil {
			t.Fatal(err)
		}
		var reply driver.Reply
		for range 20 { // as the library does: renew, and ask again when that is gone
			s.Renew(context.Background(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Second, TicketTTL: time.Minute, HintAddress: sub.Address()}},
				func(_ int, r driver.Reply, e error) { reply, err = r, e })
			if err != nil {
				t.Fatal(err)
			}
			if reply.State == driver.Gone {
				reply = ask("a", time.Minute)
			}
			if reply.State == driver.Granted {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if reply.State != driver.Granted || reply.Token <= second.Token {
			t.Errorf("granted again: %+v, after token %d", reply, second.Token)
		}
	})
}
