package s3driver

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

// TestClock_NoServerEndsALeaseOfAnotherEarly plays two servers with the greatest difference of their
// clocks, from every phase of a step.
func TestClock_NoServerEndsALeaseOfAnotherEarly(t *testing.T) {
	s := fakes3.New()
	s.Hold()
	slow := openAt(t, urlOf(t, s.Start(t, -skew/2).URL, ""))
	fast := openAt(t, urlOf(t, s.Start(t, skew/2).URL, ""))
	state := func(d *Driver, id string) driver.State {
		t.Helper()
		req := requestOf(id)
		req.TTL = MinTTL
		reply, err := d.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return reply.State
	}
	const phases = 20
	for range phases {
		if got := state(slow, "a"); got != driver.Granted {
			t.Fatalf("a free lock: %v", got)
		}
		s.Advance(MinTTL - time.Millisecond)
		if got := state(fast, "b"); got != driver.Busy {
			t.Errorf("before the end of the lease: %v", got)
		}
		s.Advance(margin + step)
		if got := state(fast, "b"); got != driver.Granted {
			t.Errorf("%v after the end of the lease: %v", margin+step, got)
		}
		if _, err := fast.Release(t.Context(), driver.Ref{Key: "orders/42", ID: "b"}); err != nil {
			t.Fatal(err)
		}
		s.Advance(step/phases + time.Millisecond)
	}
}

// TestClock_TokensRiseAlthoughItIsSteppedBack checks that a record outlives its lock.
func TestClock_TokensRiseAlthoughItIsSteppedBack(t *testing.T) {
	s := fakes3.New()
	s.Hold()
	d := openAt(t, urlOf(t, s.Start(t, 0).URL, ""))
	last := int64(0)
	for _, id := range []string{"a", "b", "c"} {
		reply, err := d.Acquire(t.Context(), requestOf(id))
		if err != nil || reply.State != driver.Granted || reply.Token <= last {
			t.Fatalf("%s: %+v, %v; the last token is %d", id, reply, err, last)
		}
		last = reply.Token
		if _, err := d.Release(t.Context(), driver.Ref{Key: "orders/42", ID: id}); err != nil {
			t.Fatal(err)
		}
		s.Advance(-memory / 3)
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
		if _, err := d.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	s.Log()
	ref := driver.Ref{Key: req.Key, ID: "waiter", TTL: time.Minute, TicketTTL: 3 * time.Second}
	for i := range 12 { // twice a second
		d.Renew(t.Context(), []driver.Ref{ref}, func(_ int, reply driver.Reply, err error) {
			if err != nil || reply.State != driver.Queued {
				t.Errorf("renewal %d: %+v, %v", i, reply, err)
			}
		})
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
	acquire := func(id string) error {
		_, err := d.Acquire(t.Context(), requestOf(id))
		return err
	}
	for _, row := range []struct {
		what          string
		call          func() error
		reads, writes int
	}{
		{"first write", func() error { _, err := d.bucket.prove(t.Context()); return err }, 2, 6},
		{"lock", func() error { return acquire("a") }, 1, 1},
		{"try", func() error { return acquire("b") }, 1, 0},
		{"unlock", func() error { _, err := d.Release(t.Context(), driver.Ref{Key: "orders/42", ID: "a"}); return err }, 1, 1},
	} {
		if err := row.call(); err != nil {
			t.Fatal(err)
		}
		if log := s.Log(); count(log, "GET") != row.reads || count(log, "PUT") != row.writes {
			t.Errorf("%s: %+v; want %d reads and %d writes", row.what, log, row.reads, row.writes)
		}
	}
}
