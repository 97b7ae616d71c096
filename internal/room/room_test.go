package room

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// story is a record and a clock. Its methods fail the test unless the answer is the given one.
type story struct {
	*testing.T
	r   Record
	now int64    // µs
	out []string // the hints of the last call: "granted a", "ask b 5s"
}

func tell(t *testing.T) *story { return &story{T: t, now: 1_700_000_000_000_000} }

func (s *story) pass(d time.Duration) { s.now += d.Microseconds() }

type option func(*driver.Request)

func ttl(d time.Duration) option   { return func(r *driver.Request) { r.TTL = d } }
func delay(d time.Duration) option { return func(r *driver.Request) { r.LockDelay = d } }
func waits(address string) option {
	return func(r *driver.Request) { r.TicketTTL, r.HintAddress = time.Minute, address }
}
func policy(p driver.Policy) option { return func(r *driver.Request) { r.Policy = p } }
func reader(r *driver.Request)      { r.Mode = driver.Shared }
func resize(r *driver.Request)      { r.Resize = true }
func places(limit, weight int) option {
	return func(r *driver.Request) { r.Mode, r.Limit, r.Weight = driver.Shared, limit, weight }
}
func owner(name string) option {
	return func(r *driver.Request) { r.Owner, r.Reenter = name, true }
}

func (s *story) acquire(id string, want driver.State, opts ...option) driver.Reply {
	s.Helper()
	req := driver.Request{Key: "k", ID: id, TTL: 30 * time.Second, ConfirmWindow: time.Second}
	for _, opt := range opts {
		opt(&req)
	}
	reply, wakes, err := Acquire(&s.r, req, s.now)
	if err != nil || reply.State != want {
		s.Fatalf("acquire %s: %+v, %v; want state %d", id, reply, err, want)
	}
	s.note(wakes)
	return reply
}

func (s *story) renew(id string, want driver.State, address string) driver.Reply {
	s.Helper()
	ref := driver.Ref{Key: "k", ID: id, TTL: 30 * time.Second, TicketTTL: time.Minute, HintAddress: address}
	reply, wakes := Renew(&s.r, ref, s.now)
	if reply.State != want {
		s.Fatalf("renew %s: %+v, want state %d", id, reply, want)
	}
	s.note(wakes)
	return reply
}

func (s *story) release(id string, want driver.State) {
	s.Helper()
	s.releaseRef(driver.Ref{Key: "k", ID: id}, want)
}

func (s *story) releaseRef(ref driver.Ref, want driver.State) {
	s.Helper()
	reply, wakes := Release(&s.r, ref, s.now)
	if reply.State != want {
		s.Fatalf("release %s: %+v, want state %d", ref.ID, reply, want)
	}
	s.note(wakes)
}

func (s *story) broke(id string) {
	s.Helper()
	_, wakes := Break(&s.r, "k", id, "why", s.now)
	s.note(wakes)
}

func (s *story) note(wakes []Wake) {
	s.out = nil
	for _, w := range wakes {
		switch w.Hint.Kind {
		case driver.HintGranted:
			s.out = append(s.out, "granted "+w.Hint.ID)
		case driver.HintAsk:
			s.out = append(s.out, fmt.Sprintf("ask %s %v", w.Hint.ID, w.Hint.RetryAfter))
		case driver.HintBroken:
			if w.Address != Everybody || w.Hint.Key != "k" {
				s.Errorf("the hint of a break goes to %q, for the lock %q", w.Address, w.Hint.Key)
			}
			s.out = append(s.out, "broken "+w.Hint.ID)
		}
	}
}

// heard fails the test unless the last call sent exactly these hints.
func (s *story) heard(want ...string) {
	s.Helper()
	if !slices.Equal(s.out, want) {
		s.Fatalf("hints %q, want %q", s.out, want)
	}
}

func TestDelay_TheHeadIsToldWhenTheRoomOpens(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, delay(10*time.Second))
	s.acquire("b", driver.Queued, waits("p"))
	s.broke("a")
	s.heard("broken a", "ask b 10s")
	s.pass(10 * time.Second)
	s.renew("b", driver.Granted, "p")
}

func TestKeep_NeverOpensEarlierThanBefore(t *testing.T) {
	s := tell(t)
	s.acquire("a1", driver.Granted, owner("me"))
	s.acquire("a2", driver.Granted, owner("me"))
	s.releaseRef(driver.Ref{ID: "a1", KeepClosed: 10 * time.Second}, driver.Released)
	s.releaseRef(driver.Ref{ID: "a2", KeepClosed: time.Second}, driver.Released)
	s.pass(9 * time.Second)
	s.acquire("b", driver.Busy)
	s.pass(time.Second)
	s.acquire("b", driver.Granted)
}

func TestKeep_IsNotForThoseWhoOnlyWaited(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("b", driver.Queued, waits("p"))
	s.releaseRef(driver.Ref{ID: "b", KeepClosed: time.Hour}, driver.Left)
	s.release("a", driver.Released)
	s.acquire("c", driver.Granted)
}

func TestAcquire_SeedsTheTokenWithTheClock(t *testing.T) {
	s := tell(t)
	if got := s.acquire("a", driver.Granted); got.Token != s.now {
		t.Fatalf("token %d, the clock shows %d", got.Token, s.now)
	}
	s.release("a", driver.Released)
	s.pass(time.Hour)
	if got := s.acquire("b", driver.Granted); got.Token != s.now {
		t.Fatalf("token %d, the clock shows %d", got.Token, s.now)
	}
	s.release("b", driver.Released)
	s.pass(-time.Hour)
	if got := s.acquire("c", driver.Granted); got.Token != s.now+time.Hour.Microseconds()+1 {
		t.Fatalf("token %d", got.Token)
	}
}

func TestAcquire_TheTicketKeepsItsFirstRequest(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("b", driver.Queued, waits("p"))
	s.acquire("b", driver.Queued, waits(""), policy(driver.Barging), reader)
	s.release("a", driver.Released)
	s.heard() // it has no address any more
	s.acquire("r", driver.Busy, reader)
	s.acquire("b", driver.Granted)
	if p := s.r.inside("b"); p.Mode != driver.Exclusive {
		t.Fatalf("%+v", p)
	}
}

func TestRank_OfPoliciesInOneQueue(t *testing.T) {
	s := tell(t)
	s.acquire("holder", driver.Granted)
	s.acquire("f", driver.Queued, waits(""))
	s.acquire("b", driver.Queued, waits(""), policy(driver.Barging))
	s.acquire("w", driver.Queued, waits(""), policy(driver.WritersFirst))
	s.acquire("r", driver.Queued, waits(""), policy(driver.ReadersFirst), reader)
	var order []string
	for _, w := range Look(&s.r, "k", s.now).Waiters {
		order = append(order, w.ID)
	}
	if want := []string{"w", "r", "f", "b"}; !slices.Equal(order, want) {
		t.Fatalf("the order is %q, want %q", order, want)
	}
}

func TestBreak_TheReasonIsForgottenInTime(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, ttl(2*time.Minute))
	s.broke("a")
	s.heard("broken a") // it gave no address
	s.pass(2*time.Minute - time.Second)
	if got := s.renew("a", driver.Gone, ""); !got.Broken || got.Reason != "why" {
		t.Fatalf("%+v", got)
	}
	s.pass(time.Second)
	if got := s.renew("a", driver.Gone, ""); got.Broken || !s.r.Idle(s.now) {
		t.Fatalf("%+v, %+v", got, s.r)
	}
}
