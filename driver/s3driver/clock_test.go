package s3driver

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

// TestClock_NoServerEndsALeaseOfAnotherEarly plays two servers with the greatest difference of their
// clocks, from every phase of a step.
func TestClock_NoServerEndsALeaseOfAnotherEarly(t *testing.T) {
	s := fakes3.New()
	s.Hold()
	slow := openAt(t, urlOf(t, s.Start(t, -skew/2).URL, ""))
	fast := openAt(t, urlOf(t, s.Start(t, skew/2).URL, ""))
	brief := func(id string) driver.Request {
		req := requestOf(id)
		req.TTL = MinTTL
		return req
	}
	const phases = 20
	for range phases {
		acquire(t, slow, brief("a"), driver.Granted)
		s.Advance(MinTTL - time.Millisecond)
		acquire(t, fast, brief("b"), driver.Busy)
		s.Advance(margin + step) // after the end of the lease
		acquire(t, fast, brief("b"), driver.Granted)
		release(t, fast, "orders/42", "b")
		s.Advance(step/phases + time.Millisecond)
	}
}

// TestRenew_OfATicketWithinAStepWritesNothing is the reason for the length of a step.
func TestRenew_OfATicketWithinAStepWritesNothing(t *testing.T) {
	s := fakes3.New()
	s.Hold()
	d := openAt(t, urlOf(t, s.Start(t, 0).URL, ""), roomdriver.WithSweep(0))
	req := requestOf("holder")
	for _, id := range []string{"holder", "waiter"} {
		req.ID, req.TicketTTL = id, 3*time.Second
		acquire(t, d, req, map[string]driver.State{"holder": driver.Granted, "waiter": driver.Queued}[id])
	}
	s.Log()
	ref := driver.Ref{Key: req.Key, ID: "waiter", TTL: time.Minute, TicketTTL: 3 * time.Second}
	for range 12 { // twice a second
		ask.Renew(t, d, driver.Queued, ref)
		s.Advance(time.Second / 2)
	}
	if log := s.Log(); count(log, "GET") != 12 || count(log, "PUT") != 2 {
		t.Errorf("%d reads and %d writes in 6 s, want 12 and 2", count(log, "GET"), count(log, "PUT"))
	}
}

// TestCosts_AreAsDocumented counts the requests of a probe, of a lock and of a try.
func TestCosts_AreAsDocumented(t *testing.T) {
	s := fakes3.New()
	d := openAt(t, urlOf(t, s.Start(t, 0).URL, ""), roomdriver.WithSweep(0))
	for _, row := range []struct {
		what          string
		call          func()
		reads, writes int
	}{
		{"first write", func() { warm(t, d) }, 2, 6},
		{"lock", func() { acquire(t, d, requestOf("a"), driver.Granted) }, 1, 1},
		{"try", func() { acquire(t, d, requestOf("b"), driver.Busy) }, 1, 0},
		{"unlock", func() { release(t, d, "orders/42", "a") }, 1, 1},
	} {
		row.call()
		if log := s.Log(); count(log, "GET") != row.reads || count(log, "PUT") != row.writes {
			t.Errorf("%s: %+v; want %d reads and %d writes", row.what, log, row.reads, row.writes)
		}
	}
}
