package room

import (
	"errors"
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

func TestDelay_FollowsExpiryFromTheMomentItCame(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, ttl(time.Second), delay(10*time.Second))
	s.pass(5 * time.Second)
	if got := s.acquire("b", driver.Busy); got.RetryAfter != 6*time.Second || len(got.Holders) != 0 {
		t.Fatalf("%+v", got)
	}
	if got := Look(&s.r, "k", s.now); got.Closed != 6*time.Second {
		t.Fatalf("closed for %v", got.Closed)
	}
	s.pass(6 * time.Second)
	s.acquire("b", driver.Granted)
}

func TestDelay_TheHeadIsToldWhenTheRoomOpens(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, delay(10*time.Second))
	s.acquire("b", driver.Queued, waits("p"))
	_, wakes := Break(&s.r, "k", "a", "why", s.now)
	s.note(wakes)
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

func TestAcquire_RefusesAMinimumFarAhead(t *testing.T) {
	s := tell(t)
	for ahead, want := range map[time.Duration]error{24 * time.Hour: nil, 24*time.Hour + 1000: driver.ErrInvalid} {
		var r Record
		req := driver.Request{ID: "a", TTL: time.Second, MinToken: s.now + ahead.Microseconds()}
		if _, _, err := Acquire(&r, req, s.now); !errors.Is(err, want) {
			t.Errorf("%v ahead: %v", ahead, err)
		}
	}
}

func TestAcquire_AGuardedOneDoesNotOpenAnUnknownRoom(t *testing.T) {
	s := tell(t)
	req := driver.Request{Key: "k", ID: "a", TTL: time.Minute, Guard: true}
	for range 2 {
		if _, _, err := Acquire(&s.r, req, s.now); !errors.Is(err, driver.ErrAmnesia) {
			t.Fatal(err)
		}
	}
	s.acquire("b", driver.Granted)
	s.release("b", driver.Released)
	if reply, _, err := Acquire(&s.r, req, s.now); err != nil || reply.State != driver.Granted {
		t.Fatalf("%+v, %v", reply, err)
	}
}

func TestRenew_RaisesTheTokenOfAllWhoShareIt(t *testing.T) {
	s := tell(t)
	first := s.acquire("a", driver.Granted, owner("me"))
	s.acquire("b", driver.Granted, owner("me"))
	raised := first.Token + 5
	for _, want := range []int64{raised, first.Token, s.now + ahead + 1} { // only the first is taken over
		reply, _ := Renew(&s.r, driver.Ref{Key: "k", ID: "b", TTL: time.Minute, Token: want}, s.now)
		if reply.Token != raised {
			t.Fatalf("raised to %d: token %d, want %d", want, reply.Token, raised)
		}
	}
	if reply := s.renew("a", driver.Granted, ""); reply.Token != raised {
		t.Fatalf("token %d, want %d", reply.Token, raised)
	}
	if reply := s.acquire("c", driver.Granted, owner("me")); reply.Token != raised {
		t.Fatalf("token %d, want %d", reply.Token, raised)
	}
}

func TestAcquire_ShowsWhoStaysLongest(t *testing.T) {
	s := tell(t)
	s.acquire("r1", driver.Granted, reader, ttl(10*time.Second))
	s.acquire("r2", driver.Granted, reader, ttl(20*time.Second))
	s.acquire("r3", driver.Granted, reader, ttl(5*time.Second))
	got := s.acquire("w", driver.Busy)
	if len(got.Holders) != 1 || got.Holders[0].ID != "r2" || got.Holders[0].Remaining != 20*time.Second || got.RetryAfter != 5*time.Second {
		t.Fatalf("%+v", got)
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

func TestRank_OfPolicies(t *testing.T) {
	writer := func(*driver.Request) {}
	type waiter struct {
		id     string
		mode   option
		policy driver.Policy
	}
	for name, c := range map[string]struct {
		arrive []waiter
		want   []string
	}{
		"FIFO": {
			[]waiter{{"r1", reader, driver.FIFO}, {"w1", writer, driver.FIFO}, {"r2", reader, driver.FIFO}},
			[]string{"r1", "w1", "r2"},
		},
		"writers first": {
			[]waiter{{"r1", reader, driver.WritersFirst}, {"w1", writer, driver.WritersFirst}, {"r2", reader, driver.WritersFirst}, {"w2", writer, driver.WritersFirst}},
			[]string{"w1", "w2", "r1", "r2"},
		},
		"readers first": {
			[]waiter{{"w1", writer, driver.ReadersFirst}, {"r1", reader, driver.ReadersFirst}, {"w2", writer, driver.ReadersFirst}, {"r2", reader, driver.ReadersFirst}},
			[]string{"r1", "r2", "w1", "w2"},
		},
		"mixed": {
			[]waiter{{"f", writer, driver.FIFO}, {"b", writer, driver.Barging}, {"w", writer, driver.WritersFirst}, {"r", reader, driver.ReadersFirst}},
			[]string{"w", "r", "f", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.acquire("holder", driver.Granted)
			for _, w := range c.arrive {
				s.acquire(w.id, driver.Queued, waits(""), w.mode, policy(w.policy))
			}
			var got []string
			for _, w := range Look(&s.r, "k", s.now).Waiters {
				got = append(got, w.ID)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("served %q, want %q", got, c.want)
			}
		})
	}
}

func TestBreak_TheReasonIsForgottenInTime(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, ttl(2*time.Minute))
	_, wakes := Break(&s.r, "k", "a", "why", s.now)
	s.note(wakes)
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

func TestDowngrade_LetsReadersInAndNoWriter(t *testing.T) {
	s := tell(t)
	first := s.acquire("a", driver.Granted)
	s.acquire("r", driver.Queued, reader, waits("p"))
	s.acquire("w", driver.Queued, waits("p"))
	if got := s.acquire("a", driver.Granted, reader); got.Token != first.Token {
		t.Fatalf("token %d, want %d", got.Token, first.Token)
	}
	s.heard("granted r", "ask w 1s")
}

func TestResize_RevokesNothingAndFillsUp(t *testing.T) {
	s := tell(t)
	resize := func(limit int) driver.Reply {
		reply, wakes, err := Acquire(&s.r, driver.Request{Resize: true, Limit: limit}, s.now)
		if err != nil {
			t.Fatal(err)
		}
		s.note(wakes)
		return reply
	}
	if got := resize(3); got.State != driver.Gone {
		t.Fatalf("%+v", got)
	}
	for i := range 3 {
		s.acquire(fmt.Sprint("a", i), driver.Granted, places(3, 1))
	}
	s.acquire("heavy", driver.Queued, places(3, 3), waits("p"))
	s.acquire("light", driver.Queued, places(3, 1), waits("p"))
	resize(2)
	s.heard("ask light 30s") // heavy can never fit
	s.release("a0", driver.Released)
	s.heard()
	s.release("a1", driver.Released)
	s.heard("granted light")
	s.acquire("more", driver.Queued, places(2, 1), waits("p"))
	resize(4)
	s.heard("granted more")
}

// TestResize_ThatIsRejectedChangesNothing: it may arrive long after a later one. The call still
// sends the hints that are due.
func TestResize_ThatIsRejectedChangesNothing(t *testing.T) {
	for _, once := range []bool{false, true} {
		resize := func(r *driver.Request) { r.Resize, r.SingleUseID = true, once }
		s := tell(t)
		s.acquire("brief", driver.Granted, places(2, 1), ttl(time.Second))
		s.acquire("a", driver.Granted, places(2, 1))
		s.acquire("to-3", driver.Resized, places(3, 1), resize)
		reply, wakes := Release(&s.r, driver.Ref{Key: "k", ID: "to-3", RejectIDFor: time.Minute, SingleUseID: once}, s.now)
		if reply.State != driver.Gone || len(wakes) > 0 {
			t.Fatalf("%+v, %v", reply, wakes)
		}
		s.acquire("to-2", driver.Resized, places(2, 1), resize)
		s.acquire("to-3", driver.Gone, places(3, 1), resize)
		if s.r.Limit != 2 {
			t.Errorf("once %v: the limit is %d", once, s.r.Limit)
		}
		if !once {
			s.acquire("w", driver.Queued, places(2, 1), waits("p"))
			s.pass(time.Second)
			s.acquire("to-3", driver.Gone, places(3, 1), resize)
			s.heard("granted w")
		}
	}
}

// TestResize_OfARoomThatNobodySharesTellsWhatItFinds: the lease of its holder is over.
func TestResize_OfARoomThatNobodySharesTellsWhatItFinds(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, ttl(time.Second))
	s.acquire("w", driver.Queued, waits("p"))
	s.pass(time.Second)
	s.acquire("to-3", driver.Gone, places(3, 1), func(r *driver.Request) { r.Resize = true })
	s.heard("granted w")
}

func TestLook_ChangesNothing(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, ttl(time.Second), delay(10*time.Second))
	s.acquire("b", driver.Queued, waits("p"))
	s.pass(2 * time.Second)
	before := fmt.Sprintf("%+v", s.r)
	if got := Look(&s.r, "k", s.now); len(got.Holders) != 0 || len(got.Waiters) != 1 || got.Closed != 9*time.Second {
		t.Fatalf("%+v", got)
	}
	if after := fmt.Sprintf("%+v", s.r); after != before {
		t.Fatalf("%s\n%s", before, after)
	}
}
