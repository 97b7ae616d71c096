package session

import (
	"log/slog"
	"math/rand/v2"
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

// A lease that is over before its time leaves the timer to those after it, and one that
// is over before the others has it set anew.
func TestDeadlines_OneTimerServesAllLeasesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(memdriver.New(), slog.New(slog.DiscardHandler), nil)
		defer s.Close()
		hold := func(id string, ttl time.Duration) (*Hold, ends) {
			terms := &Terms{TTL: ttl, NoRenewal: true, ReleaseTimeout: time.Second, MaxOutage: time.Second}
			req := driver.Request{Key: id, ID: id, TTL: ttl}
			a, err := s.Try(t.Context(), terms, &req)
			if err != nil {
				t.Fatal(err)
			}
			h, told := new(Hold), ends{terms, make(chan struct{})}
			if err := s.Hold(h, &req, a.Grant(), told); err != nil {
				t.Fatal(err)
			}
			return h, told
		}
		due := func(h *Hold, told ends) {
			t.Helper()
			want := h.Deadline()
			<-told.over // nobody looks
			if late := time.Since(want); late != 0 {
				t.Errorf("%s ended %v after its deadline", h.ID(), late)
			}
		}

		first, _ := hold("first", 10*time.Second)
		first.over(ErrGone)
		time.Sleep(5 * time.Second)
		second, told := hold("second", 10*time.Second)
		third, sooner := hold("third", time.Second)
		due(third, sooner)
		due(second, told)
		time.Sleep(time.Minute)
		due(hold("fourth", 10*time.Second))
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
func (ends) CutOff()                                 {}
func (ends) GiveBack(error, time.Duration) error     { return nil }
func (e ends) Ended(error)                           { close(e.over) }

// TestExpiry_RingsForEachInTimeAndKeepsNothing plays leases whose deadlines come in any
// order, move, and are cleared.
func TestExpiry_RingsForEachInTimeAndKeepsNothing(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		stage(t, new(script), func(t *testing.T, s *Session) {
			holds, users := make([]*Hold, 7), make([]*user, 7)
			for i := range holds {
				users[i] = &user{terms: &Terms{TTL: time.Second, NoRenewal: true, Log: usual().Log}}
				holds[i] = &Hold{s: s, events: users[i], id: string(rune('a' + i))}
			}
			set := make([]bool, 7)
			check := func() {
				synctest.Wait()
				kept := 0
				for i, h := range holds {
					over := set[i] && !s.Now().Before(h.Deadline())
					if at := users[i].told().at; over != (h.Cause() != nil) || over && !at.Equal(h.Deadline()) {
						t.Fatalf("lease %d ended at %v, its deadline is %v, now is %v", i, at, h.Deadline(), s.Now())
					}
					if set[i] && !over {
						kept++
					}
				}
				s.expiry.mu.Lock()
				defer s.expiry.mu.Unlock()
				armed := s.expiry.bell.at // without a lease it may be what was set for one before
				_, first := s.expiry.agenda.first()
				if n := len(s.expiry.agenda.entries); n != kept || kept > 0 && (armed == 0 || armed > first) {
					t.Fatalf("%d alarms for %d leases, the timer is set to %v", n, kept, armed)
				}
			}
			for range 60 {
				i, d := rnd.IntN(len(holds)), time.Duration(1+rnd.IntN(3000))*ms
				h := holds[i]
				switch what := rnd.IntN(6); {
				case what == 0:
					time.Sleep(d / 8)
				case set[i] && h.Cause() != nil:
				case what < 5:
					h.mu.Lock()
					h.deadline = s.instant(s.Now().Add(d))
					s.expiry.set(h, h.deadline)
					h.mu.Unlock()
					set[i] = true
				case set[i]:
					s.expiry.clear(h)
					set[i] = false
				}
				check()
			}
			time.Sleep(3 * time.Second)
			check()
			s.expiry.mu.Lock()
			defer s.expiry.mu.Unlock()
			if s.expiry.bell.at != 0 {
				t.Fatalf("the timer is still set to %v", s.expiry.bell.at)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
