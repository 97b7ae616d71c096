package room

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func TestHandOver_AReleaseWakesTheNextAndTellsTheNewHead(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("b", driver.Queued, waits("p"))
	s.acquire("c", driver.Queued, waits("p"))
	s.acquire("d", driver.Queued, waits("p"))
	s.heard() // the head has asked and needs no hint
	s.release("nobody", driver.Gone)
	s.heard()
	s.acquire("try", driver.Busy)
	s.heard()
	s.release("a", driver.Released)
	s.heard("granted b", "ask c 1s")
	s.renew("b", driver.Granted, "p")
	s.pass(time.Second)
	if got := s.renew("c", driver.Queued, "p"); got.Position != 1 || got.RetryAfter != 29*time.Second {
		t.Fatalf("%+v", got)
	}
	s.release("b", driver.Released)
	s.heard("granted c", "ask d 1s")
}

func TestHandOver_TheHeadIsToldWhenTheTimeComesNearer(t *testing.T) {
	s := tell(t)
	s.acquire("r1", driver.Granted, reader, ttl(20*time.Second))
	s.acquire("w", driver.Queued, waits("p"))
	s.acquire("r2", driver.Granted, reader, policy(driver.Barging), ttl(5*time.Second))
	s.release("nobody", driver.Gone)
	s.heard("ask w 5s")
}

func TestHandOver_ALapseMakesTheProcessSuspect(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("dead1", driver.Queued, waits("dead"))
	s.acquire("dead2", driver.Queued, waits("dead"))
	s.acquire("b", driver.Queued, waits("alive"))
	s.acquire("dead3", driver.Queued, waits("dead"))
	s.release("a", driver.Released)
	s.heard("granted dead1", "ask dead2 1s")
	s.pass(time.Second)
	s.release("nobody", driver.Gone) // any call to the room
	s.heard("granted b", "ask dead3 1s")
	s.renew("dead2", driver.Gone, "dead")
}

func TestHandOver_WhoeverIsBeyondTheBatchIsToldToAskAtOnce(t *testing.T) {
	s := tell(t)
	s.acquire("w", driver.Granted)
	for i := range 3 * batch {
		s.acquire(fmt.Sprint("r", i), driver.Queued, reader, waits("p"))
	}
	s.release("w", driver.Released)
	if len(s.out) != batch+1 || s.out[batch] != fmt.Sprintf("ask r%d 0s", batch) {
		t.Fatalf("%d hints, the last %q", len(s.out), s.out[len(s.out)-1])
	}
	s.renew(fmt.Sprint("r", batch), driver.Granted, "p")
	s.renew(fmt.Sprint("r", 2*batch), driver.Granted, "p")
	if len(s.r.Queue) != 0 {
		t.Fatalf("%d still wait", len(s.r.Queue))
	}
}

func TestHandOver_AHeadThatKeepsOutWhoFitsIsCalledAndHasItsWindow(t *testing.T) {
	s := tell(t)
	s.acquire("r1", driver.Granted, reader)
	s.acquire("w1", driver.Queued, waits("p"))
	s.acquire("w2", driver.Queued, waits("q"))
	s.heard() // there is no room for it either
	if got := s.acquire("r2", driver.Queued, reader, waits("o")); got.RetryAfter != 0 {
		t.Errorf("the third is to ask after %v", got.RetryAfter)
	}
	s.heard("ask w1 0s")
	s.renew("w1", driver.Queued, "p")
	s.release("w2", driver.Left)
	s.pass(400 * time.Millisecond)
	if got := s.renew("r2", driver.Queued, "o"); got.RetryAfter != 600*time.Millisecond {
		t.Errorf("the waiter behind the head is to ask after %v", got.RetryAfter)
	}
	s.heard() // not again within its window
	s.pass(600 * time.Millisecond)
	if got := s.renew("r2", driver.Queued, "o"); got.RetryAfter != time.Second {
		t.Errorf("the waiter behind the head is to ask after %v", got.RetryAfter)
	}
	s.heard("ask w1 0s")
	s.pass(time.Second)
	s.renew("r2", driver.Granted, "o")
	s.renew("w1", driver.Gone, "p")
}

func TestHandOver_ReentrantsOfOneOwnerEnterTogether(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("b1", driver.Queued, waits("p"), owner("me"))
	s.acquire("b2", driver.Queued, waits("p"), owner("me"))
	s.acquire("c", driver.Queued, waits("p"), owner("you"))
	s.release("a", driver.Released)
	s.heard("granted b1", "granted b2", "ask c 1s")
}

func TestHandOver_P6_ACallThatIsMissedTakesNoPlaceThatWasTakenAfterIt(t *testing.T) {
	s := tell(t)
	s.acquire("r1", driver.Granted, reader)
	s.acquire("w1", driver.Queued, waits("p"))
	s.acquire("r2", driver.Busy, reader)
	s.heard("ask w1 0s")
	s.acquire("w2", driver.Queued, waits("p"))
	s.pass(time.Second)
	s.acquire("r3", driver.Busy, reader)
	s.heard("ask w2 29s", "ask w2 0s")
	s.renew("w1", driver.Gone, "p")
	s.renew("w2", driver.Queued, "p")
}

// TestHandOver_ARecordOfBeforeIsRead: a mark or a hand-over without an arrival number, as in old
// records, applies to all arrivals.
func TestHandOver_ARecordOfBeforeIsRead(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("b1", driver.Queued, waits("p"))
	s.acquire("b2", driver.Queued, waits("p"))
	s.acquire("c", driver.Queued, waits("q"))
	s.r.mark("!p", s.r.Until(), "")
	s.release("a", driver.Released)
	s.heard("granted c")
}

// TestHandOver_AWordToWhoHasEndedLetsTheNextIn: a call without an effect of its own finds that the
// lease of the holder is over.
func TestHandOver_AWordToWhoHasEndedLetsTheNextIn(t *testing.T) {
	for name, call := range map[string]func(s *story){
		"a forbidden id asks":     func(s *story) { s.acquire("f", driver.Gone) },
		"a broken lease asks":     func(s *story) { s.acquire("x", driver.Gone) },
		"a broken lease renews":   func(s *story) { s.renew("x", driver.Gone, "") },
		"an operator is mistaken": func(s *story) { s.broke("nobody") },
		"a forbidden id resizes":  func(s *story) { s.acquire("f", driver.Gone, places(3, 1), resize) },
		"a mutex is resized":      func(s *story) { s.acquire("n", driver.Gone, places(3, 1), resize) },
		"another visit gives up":  func(s *story) { s.releaseRef(driver.Ref{Key: "k", ID: "b", Visit: "v/1"}, driver.Busy) },
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.releaseRef(driver.Ref{Key: "k", ID: "f", RejectIDFor: time.Minute}, driver.Gone)
			s.acquire("x", driver.Granted)
			s.broke("x")
			s.acquire("a", driver.Granted, ttl(time.Second))
			s.acquire("b", driver.Queued, waits("p"), func(r *driver.Request) { r.Visit = "v/2" })
			s.pass(time.Second)
			call(s)
			s.heard("granted b")
		})
	}
}
