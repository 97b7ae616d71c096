package room

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// at is a time in µs that is not rounded.
const at = int64(1_700_000_000_000_000)

// TestLook_ShowsWhatLastsAndNothingThatIsOver looks in the millisecond before an end, and in the
// millisecond of the end.
func TestLook_ShowsWhatLastsAndNothingThatIsOver(t *testing.T) {
	ms := at / 1000
	before := func() Record {
		return Record{
			Limit:  3,
			Inside: []Party{{ID: "a", Mode: driver.Shared, Expiry: ms + 10, Delay: 5}},
			Queue:  []Party{{ID: "b", Mode: driver.Shared, Expiry: ms + 20}, {ID: "c", Expiry: ms + 30}},
		}
	}
	r := before()
	for _, c := range []struct {
		after                   int64
		holders, waiters, limit int
		closed                  time.Duration
	}{
		{9, 1, 2, 3, 0}, {10, 0, 2, 3, 5 * time.Millisecond}, {14, 0, 2, 3, time.Millisecond}, {15, 0, 2, 3, 0},
		{19, 0, 2, 3, 0}, {20, 0, 1, 0, 0}, {29, 0, 1, 0, 0}, {30, 0, 0, 0, 0},
	} {
		snap := Look(&r, "k", at+c.after*1000)
		if len(snap.Holders) != c.holders || len(snap.Waiters) != c.waiters || snap.Limit != c.limit || snap.Closed != c.closed {
			t.Errorf("after %d ms: %+v", c.after, snap)
		}
		for i, w := range snap.Waiters {
			last := map[string]int64{"b": 20, "c": 30}[w.ID]
			if w.Position != i+1 || w.Remaining != time.Duration(last-c.after)*time.Millisecond {
				t.Errorf("after %d ms: %+v", c.after, w)
			}
		}
		for _, h := range snap.Holders {
			if h.Remaining != time.Duration(10-c.after)*time.Millisecond {
				t.Errorf("after %d ms: %+v", c.after, h)
			}
		}
	}
	if !reflect.DeepEqual(r, before()) {
		t.Errorf("a look has changed the record to %+v", r)
	}
	r = Record{Limit: 3, Inside: []Party{{ID: "a", Expiry: ms + 10}}, Queue: []Party{{ID: "b", Expiry: ms + 10}}}
	if snap := Look(&r, "k", at); snap.Limit != 0 {
		t.Errorf("a mutex with a limit: %+v", snap)
	}
	r = Record{Closed: ms + 5, Inside: []Party{{ID: "a", Expiry: ms + 10}, {ID: "b", Expiry: ms}}}
	if snap := Look(&r, "k", at); snap.Closed != 0 {
		t.Errorf("closed with a holder: %+v", snap)
	}
	for delay, want := range map[int64]time.Duration{0: 0, 1: time.Millisecond} {
		r = Record{Inside: []Party{{ID: "b", Expiry: ms, Delay: delay}}}
		if got := Glance(&r, "k", at).Closed; got != want {
			t.Errorf("closed for %v after a lease with a delay of %d ms", got, delay)
		}
	}
}

// TestSpent_IsWhatWasSaidUntilItsTime: stores keep the hash, so it must never change.
func TestSpent_IsWhatWasSaidUntilItsTime(t *testing.T) {
	for id, want := range map[string]uint64{"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, "foobar": 0x85944171f73967e8} {
		if got := Hash(id); got != want {
			t.Errorf("the hash of %q is %#x, want %#x", id, got, want)
		}
	}
	for _, was := range []bool{true, false} {
		var s Spent
		s.remember("a", 1001, was)
		for ms, want := range map[int64]bool{1000: true, 1001: false} {
			if released, spent := s.released("a", ms); spent != want || released != (want && was) {
				t.Errorf("of one that was released, %v, at %d ms: %v, %v", was, ms, released, spent)
			}
		}
		if s.purge(1000); len(s) != 1 {
			t.Error("it is forgotten before its time")
		}
		if s.purge(1001); len(s) != 0 {
			t.Error("it is kept in the millisecond of its end")
		}
	}
	var s Spent
	for i := range 100 {
		s.remember(strings.Repeat("x", i), 1, false)
	}
	if s.purge(2); len(s) != 100-looks {
		t.Errorf("a call looked at %d, want %d", 100-len(s), looks)
	}
}

func TestCodec_KeepsTheLeast(t *testing.T) {
	for _, want := range []Record{
		{}, {Token: 1}, {Spent: Spent{5: 9}},
		{Queue: []Party{{Labels: map[string]string{"": ""}}}}, {Inside: []Party{{}}},
	} {
		raw := Append(nil, &want, 0)
		if got, err := Decode(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		for _, end := range []int64{0, -5} {
			if got, err := End(Append(nil, &want, end)); got != 0 || err != nil {
				t.Errorf("an end at %d became %d, %v", end, got, err)
			}
		}
	}
	if _, err := End(Append(nil, &Record{}, 7)[:headSize]); err != nil {
		t.Errorf("the end cannot be read from the head alone: %v", err)
	}
	if got := (&Record{Token: 1}).End(100); got != 101 {
		t.Errorf("a record of the first token ends at %d", got)
	}
}

func TestCodec_WhatNoRuleKnowsIsNoRecord(t *testing.T) {
	mode, policy := Party{Mode: driver.Shared + 1}, Party{Policy: driver.ReadersFirst + 1}
	for _, r := range []Record{
		{Inside: []Party{mode}}, {Inside: []Party{policy}}, {Queue: []Party{mode}}, {Queue: []Party{policy}}, {Marks: map[string]Mark{"": {}}},
	} {
		if _, err := Decode(Append(nil, &r, 0)); !errors.Is(err, errDamaged) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	never := append([]byte{version}, binary.BigEndian.AppendUint64(nil, Never+1)...)
	for _, raw := range [][]byte{{version + 1}, {version}, nil, never} {
		if end, err := End(raw); end != 0 || err == nil {
			t.Errorf("%x ends at %d, %v", raw, end, err)
		}
	}
}

// TestCodec_ALengthThatCannotBeRightTakesNoMemory reads a list whose length exceeds the rest of
// the data.
func TestCodec_ALengthThatCannotBeRightTakesNoMemory(t *testing.T) {
	for n, want := range map[uint64]bool{5: true, 6: false, 1000: false} {
		b := append(binary.AppendUvarint(nil, n), make([]byte, 5*minParty)...)
		c, got := codec{reads: true, b: b, text: string(b)}, 0
		if c.len(&got, minParty); c.bad == want || want && got != int(n) {
			t.Errorf("%d parties in %d bytes: %d, bad %v", n, len(b), got, c.bad)
		}
	}
}

// TestBounds_AreThoseOfTheScripts checks the bounds that the rule shares with the scripts, and
// with stored records.
func TestBounds_AreThoseOfTheScripts(t *testing.T) {
	for line, file := range map[string]string{
		"BEHIND, SUSPICION, PURGE, SWEEPS = 2 ^ 46, 60000,": "1_state", "AHEAD, SPARE, LEAD = 86400000000,": "1_state", "local BATCH = 64\n": "3_rule",
	} {
		text, err := os.ReadFile("../redisroom/lua/room/" + file + ".lua")
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("the scripts have no longer %q: %v", line, err)
		}
	}
	if Never != math.MaxInt64 || behind != 1<<46 || suspicion != 60_000 || batch != 64 || ahead != 86_400_000_000 {
		t.Errorf("the bounds are %d, %d, %d and %d", int64(behind), int64(suspicion), batch, ahead)
	}
}

// TestDelay_OfNothingClosesNothing: the room is closed after a lease with a delay only.
func TestDelay_OfNothingClosesNothing(t *testing.T) {
	for delay, want := range map[time.Duration]int64{0: 0, time.Millisecond: at/1000 + 1001} {
		r := new(Record)
		if _, _, err := Acquire(r, driver.Request{ID: "a", TTL: time.Second, LockDelay: delay}, at); err != nil {
			t.Fatal(err)
		}
		open(r, at+time.Second.Microseconds(), "")
		if r.Closed != want {
			t.Errorf("with a delay of %v it is closed until %d, want %d", delay, r.Closed, want)
		}
	}
	for delay, want := range map[time.Duration]int64{0: 0, time.Millisecond: at/1000 + 1} {
		r := new(Record)
		if _, _, err := Acquire(r, driver.Request{ID: "a", TTL: time.Second, LockDelay: delay}, at); err != nil {
			t.Fatal(err)
		}
		Break(r, "k", "a", "", at)
		if r.Closed != want {
			t.Errorf("broken, with a delay of %v, it is closed until %d, want %d", delay, r.Closed, want)
		}
	}
	r := new(Record)
	if _, _, err := Acquire(r, driver.Request{ID: "a", TTL: time.Second}, at); err != nil {
		t.Fatal(err)
	}
	Release(r, driver.Ref{ID: "a", KeepClosed: time.Nanosecond}, at)
	if r.Closed != at/1000 || !r.Idle(at) || r.Idle(at-1000) {
		t.Errorf("kept closed until %d; idle then %t, and before %t", r.Closed, r.Idle(at), r.Idle(at-1000))
	}
}

// TestRaise_StopsAtItsBounds: a day ahead is allowed, and an invalid token has no effect.
func TestRaise_StopsAtItsBounds(t *testing.T) {
	for token, want := range map[int64]int64{0: at, -1: at, 1: 1, at + ahead: at + ahead, at + ahead + 1: at} {
		r := new(Record)
		if _, _, err := Acquire(r, driver.Request{ID: "a", TTL: time.Second}, at); err != nil {
			t.Fatal(err)
		}
		Renew(r, driver.Ref{ID: "a", TTL: time.Second, Token: token, Level: true}, at)
		if r.Inside[0].Token != want || r.Token != max(at, want) {
			t.Errorf("raised to %d: %d, and %d of the room", token, r.Inside[0].Token, r.Token)
		}
	}
}

// TestMinToken_IsExceededByOne: at most a day ahead of the clock.
func TestMinToken_IsExceededByOne(t *testing.T) {
	for least, want := range map[int64]int64{at + 7: at + 8, at + ahead: at + ahead + 1, at + ahead + 1: 0} {
		reply, _, err := Acquire(new(Record), driver.Request{ID: "a", TTL: time.Second, MinToken: least}, at)
		if reply.Token != want || errors.Is(err, driver.ErrInvalid) != (want == 0) {
			t.Errorf("above %d: %+v, %v", least, reply, err)
		}
	}
}

// TestPlaces_OfADamagedRecord: a number that no rule gives is no reason to stop.
func TestPlaces_OfADamagedRecord(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted, places(3, 1))
	s.r.inside("a").Places = "1024,99999999999999999999,x,-1,1"
	if got := s.acquire("b", driver.Granted, places(3, 2)).Places; got != "0,2" {
		t.Errorf("places %q, want the free ones", got)
	}
}

// TestResize_OfALimitOfOne: a limit of 0 cannot be resized, and 1 can.
func TestResize_OfALimitOfOne(t *testing.T) {
	for _, c := range []struct {
		was, is int
		want    bool
	}{{1, 2, true}, {2, 1, true}, {0, 1, false}, {1, 0, false}, {0, 0, false}} {
		s := tell(t)
		s.acquire("a", driver.Granted, places(c.was, 1))
		reply, _, err := Acquire(&s.r, driver.Request{ID: "r", Mode: driver.Shared, Limit: c.is, Resize: true}, s.now)
		if (err == nil) != c.want || c.want && (reply.State != driver.Resized || s.r.Limit != c.is) {
			t.Errorf("from %d to %d: %+v, %v, limit %d", c.was, c.is, reply, err, s.r.Limit)
		}
	}
}

// TestSuspect_IsWhoeverDidNotComeInTime checks marks of processes one by one.
func TestSuspect_IsWhoeverDidNotComeInTime(t *testing.T) {
	ms := at / 1000
	for _, c := range []struct {
		what  string
		marks map[string]Mark
		want  string
	}{
		{"nothing is known of", nil, "5"},
		{"has lapsed before, later in the queue", map[string]Mark{"!A": {Until: ms + 1, Reason: "9"}}, "9"},
		{"has lapsed before, sooner in the queue", map[string]Mark{"!A": {Until: ms + 1, Reason: "3"}}, "5"},
		{"has lapsed long ago", map[string]Mark{"!A": {Until: ms, Reason: "9"}}, "5"},
		{"was heard of before", map[string]Mark{"@A": {Until: ms - 300 + suspicion}}, "5"},
		{"was heard of since", map[string]Mark{"@A": {Until: ms - 299 + suspicion}}, ""},
	} {
		s := &scene{Record: &Record{Marks: c.marks}, now: at, ms: ms}
		s.suspect(&Party{Notify: "A", Before: 5, Expiry: ms, Window: 300})
		if got := s.Marks["!A"].Reason; got != c.want {
			t.Errorf("one that %s: %q, want %q", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		p    Party
		want bool
	}{
		{Party{Notify: "A", Called: ms - 300, Window: 300, Expiry: ms}, true},
		{Party{Notify: "A", Called: ms - 5000, Window: 300, Expiry: ms}, false},
		{Party{Notify: "A", Window: 300, Expiry: ms}, false},
	} {
		s := open(&Record{Queue: []Party{c.p}}, at, "")
		if got := s.marked("!A"); got != c.want {
			t.Errorf("the process of %+v is suspect: %v", c.p, got)
		}
	}
	if got := (Mark{Reason: "123"}).before(); got != 123 {
		t.Errorf("a mark counts before %d", got)
	}
	s := &scene{Record: &Record{Marks: map[string]Mark{"!A": {}, "@A": {}, "+@": {}}}}
	if s.clearSuspects(); len(s.Marks) != 1 || !s.marked("+@") {
		t.Errorf("marks left: %v", s.Marks)
	}
}

// TestPingHead_TellsWhenToAskAgain: the head of the queue blocks a party that would fit.
func TestPingHead_TellsWhenToAskAgain(t *testing.T) {
	ms := at / 1000
	for _, c := range []struct {
		what   string
		head   Party
		holder bool
		want   int64
		calls  bool
	}{
		{"is called", Party{ID: "h", Notify: "A", Window: 300, Expiry: ms + 10_000}, false, 300, true},
		{"was called", Party{ID: "h", Notify: "A", Window: 300, Called: ms - 100, Expiry: ms + 10_000}, false, 200, false},
		{"has little time", Party{ID: "h", Notify: "A", Window: 300, Called: ms - 300, Expiry: ms + 200}, false, 200, false},
		{"has as much time", Party{ID: "h", Notify: "A", Window: 300, Called: ms - 300, Expiry: ms + 300}, false, 300, false},
		{"has a millisecond to come", Party{ID: "h", Notify: "A", Window: 300, Called: ms - 299, Expiry: ms + 200}, false, 1, false},
		{"hears nothing", Party{ID: "h", Window: 300, Expiry: ms + 10_000}, false, 0, false},
		{"is who asks", Party{ID: "p", Notify: "A", Window: 300, Expiry: ms + 10_000}, false, 0, false},
		{"waits for a holder", Party{ID: "h", Notify: "A", Window: 300, Expiry: ms + 10_000}, true, 0, false},
	} {
		s := &scene{Record: &Record{Queue: []Party{c.head}}, now: at, ms: ms}
		if c.holder {
			s.Inside = []Party{{ID: "i", Expiry: ms + 1000}}
		}
		if got := s.pingHead(&Party{ID: "p"}); got != c.want || len(s.wakes) > 0 != c.calls {
			t.Errorf("a head that %s: %d ms, hints %v", c.what, got, s.wakes)
		}
	}
	s := &scene{Record: &Record{Inside: []Party{{ID: "i", Expiry: ms + 100}}, Queue: []Party{{ID: "h", Notify: "A", Expiry: ms + 1000}}}, now: at, ms: ms}
	if s.hintHead(); s.Head != "h" || s.When != ms+100 {
		t.Errorf("the hint for the head %q is due %d ms from now", s.Head, s.When-ms)
	}
	if s.Closed = ms; s.next() != 100 {
		t.Errorf("it may change in %d ms", s.next())
	}
	if s.Limit = 1; !s.oversized(&Party{Mode: driver.Shared, Weight: 2}) {
		t.Error("two places fit where there is one")
	}
}

// TestAcquire_TellsAWaiterOfTheHolderAndARenewalDoesNot: the answer to a renewal of many tickets
// must be small.
func TestAcquire_TellsAWaiterOfTheHolderAndARenewalDoesNot(t *testing.T) {
	s := tell(t)
	s.acquire("a", driver.Granted)
	for range 2 {
		if reply := s.acquire("b", driver.Queued, waits("B")); len(reply.Holders) != 1 || reply.Holders[0].ID != "a" {
			t.Errorf("%+v", reply)
		}
		s.pass(100 * time.Millisecond)
	}
	want := waits("B")
	var req driver.Request
	want(&req)
	if got := s.r.ticket("b").Expiry; got != (s.now-100_000)/1000+req.TicketTTL.Milliseconds() {
		t.Errorf("the ticket lives for %d ms", got-s.now/1000)
	}
	if reply := s.renew("b", driver.Queued, "B"); len(reply.Holders) != 0 {
		t.Errorf("%+v", reply)
	}
}

func TestParty_TakesAsManyPlacesAsItsModeDoes(t *testing.T) {
	if got := newParty(driver.Request{Weight: 5}).Weight; got != 1 {
		t.Errorf("a writer has a weight of %d", got)
	}
	s := tell(t)
	s.acquire("a", driver.Granted)
	s.acquire("a", driver.Granted, reader, func(r *driver.Request) { r.Downgrade = true })
	if got := s.r.inside("a").Weight; got != 1 {
		t.Errorf("a writer that became a reader has a weight of %d", got)
	}
}

// spend acquires and releases by an id that is used once.
func spend(t *testing.T, r *Record, id string, forbid time.Duration, now int64) {
	t.Helper()
	got, _, err := Acquire(r, driver.Request{ID: id, TTL: time.Minute, SingleUseID: true}, now)
	if err != nil || got.State != driver.Granted {
		t.Fatalf("acquire %s: %+v, %v", id, got, err)
	}
	if got, _ := Release(r, driver.Ref{ID: id, SingleUseID: true, RejectIDFor: forbid}, now); got.State != driver.Released {
		t.Fatalf("release %s: %+v", id, got)
	}
}

// TestSpent_TakesWhatTheLivingOnesTake releases an id each millisecond; a thousand of them must
// be remembered at a time.
func TestSpent_TakesWhatTheLivingOnesTake(t *testing.T) {
	var r Record
	const alive = 1000
	now := int64(1e12)
	for i := range 20 * alive {
		now += 1000
		spend(t, &r, fmt.Sprint("id-", i), alive*time.Millisecond, now)
		for _, age := range []int{0, alive - 1, alive} {
			if i < age {
				continue
			}
			if _, spent := r.Spent.released(fmt.Sprint("id-", i-age), now/1000); spent != (age < alive) {
				t.Fatalf("after %d ms: remembered %v", age, spent)
			}
		}
	}
	if n := len(r.Spent); n > 2*alive {
		t.Errorf("%d ids are kept, of which %d are to be remembered", n, alive)
	}
	if until := r.Until(); until != now/1000+alive {
		t.Errorf("the record counts until %d, want %d", until, now/1000+alive)
	}
	if r.Idle(now) || !r.Idle(now+alive*1000) {
		t.Error("a room is idle once its last id has expired, and not before")
	}
}
