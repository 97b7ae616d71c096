package session

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// The timer has found the lease due, and before it looks again an answer moves the
// deadline: a matter of microseconds, so that the steps are taken by hand here.
func TestDeadlines_HR_C4_AnAnswerAtTheDeadlineLeavesNoLeaseWithoutATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), nil)
		defer s.Close()
		terms := &Terms{TTL: 10 * time.Second, NoRenewal: true, ReleaseTimeout: time.Second, MaxOutage: time.Second}
		req := driver.Request{Key: "k", ID: "a", TTL: terms.TTL}
		a, err := s.Try(t.Context(), terms, &req)
		if err != nil {
			t.Fatal(err)
		}
		h, told := new(Hold), ends{terms, make(chan struct{})}
		if err := s.Hold(h, &req, a.Grant(), told); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		s.expiry.clear(h) // as fire has
		h.asked = h.ttl
		h.Answer(s.Now(), driver.Reply{State: driver.Granted, Token: h.token}, nil)
		h.ring()
		want := h.Deadline()
		<-told.over // nobody looks
		if late := time.Since(want); late != 0 {
			t.Errorf("ended %v after the deadline", late)
		}
	})
}

// ends takes the end of a lease.
type ends struct {
	terms *Terms
	over  chan struct{}
}

func (e ends) Terms() *Terms                         { return e.terms }
func (ends) Began(time.Time)                         {}
func (ends) Renewed(time.Time, *driver.Reply, error) {}
func (ends) GiveBack(error, time.Duration)           {}
func (e ends) Ended(error)                           { close(e.over) }
