package room

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/driver"
)

// history plays random calls on one record and judges every answer by what
// the callers know, not by what the record says.
type history struct {
	*rapid.T
	r     Record
	now   int64 // µs
	next  int
	known []driver.Request
	limit int

	believes map[string]belief // those who work, until they can no longer be sure
	arrived  int
	arrivals map[string]int // of those who are queued
	tokens   map[string]int64
	last     int64            // greatest token seen
	closed   int64            // µs; the room was kept closed at least until then
	over     map[string]int64 // ids that must not come back, until when
}

// belief is a lease as its holder sees it.
type belief struct {
	driver.Request
	until int64 // µs
	end   int64 // µs, by the store's reckoning
}

func newHistory(t *rapid.T) *history {
	return &history{
		T: t, now: 1_700_000_000_000_000, limit: rapid.SampledFrom([]int{0, 3}).Draw(t, "limit"),
		believes: map[string]belief{}, arrivals: map[string]int{}, tokens: map[string]int64{}, over: map[string]int64{},
	}
}

const second = int64(time.Second / time.Microsecond)

func duration(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.IntRange(1, 3000).Draw(t, name)) * time.Millisecond
}

func sometimes(t *rapid.T, name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }

func (h *history) request() driver.Request {
	h.next++
	req := driver.Request{
		Key: "k", ID: fmt.Sprint("id", h.next), Owner: rapid.SampledFrom([]string{"o1", "o2", "o10"}).Draw(h.T, "owner"),
		Mode: driver.Mode(rapid.IntRange(0, 1).Draw(h.T, "mode")), TTL: duration(h.T, "ttl"),
		ConfirmWindow: time.Second, HintAddress: rapid.SampledFrom([]string{"", "p", "q"}).Draw(h.T, "notify"),
	}
	if req.Mode == driver.Shared {
		req.Limit, req.Weight = h.limit, rapid.IntRange(0, 3).Draw(h.T, "weight")
		if sometimes(h.T, "disagrees") {
			req.Limit = 2
		}
	}
	if sometimes(h.T, "reenter") {
		req.Reenter = true
	}
	if rapid.Bool().Draw(h.T, "waits") {
		req.TicketTTL = duration(h.T, "wait")
	}
	if sometimes(h.T, "delay") {
		req.LockDelay = duration(h.T, "delay")
	}
	if sometimes(h.T, "minimum") {
		req.MinToken = h.last + int64(rapid.IntRange(-5, 50).Draw(h.T, "ahead"))
	}
	return req
}

func (h *history) acquire(req driver.Request) {
	before, inside := Look(&h.r, "k", h.now), h.r.inside(req.ID) != nil
	reply, wakes, err := Acquire(&h.r, req, h.now)
	if err != nil {
		if after := Look(&h.r, "k", h.now); !reflect.DeepEqual(before, after) {
			h.Fatalf("an error changed the room:\n%+v\n%+v", before, after)
		}
		return
	}
	h.judge(req, reply, req.TTL, wakes)
	if !inside {
		h.nobodyIsPassed(req, reply, "")
	}
	if !inside && reply.State != driver.Gone {
		h.nobodyWaitsBeforeAnOpenDoor(req.ID)
	}
}

func (h *history) pick(t *rapid.T) driver.Request {
	if len(h.known) == 0 {
		t.Skip("nobody is known") //nolint:forbidigo // the action does not apply, and rapid draws another
	}
	return rapid.SampledFrom(h.known[max(0, len(h.known)-12):]).Draw(t, "who")
}

// raise notes that a renewal raises the token of id, and of those who share it.
func (h *history) raise(id string, token int64) {
	p := h.r.inside(id)
	if p == nil || p.Expiry <= h.now/1000 || token <= p.Token {
		return
	}
	for _, in := range h.r.Inside {
		if in.ID == id || p.Mode == driver.Exclusive && in.Expiry > h.now/1000 {
			h.tokens[in.ID] = token
		}
	}
	h.last = max(h.last, token)
}

// end notes that id has ended, by its own release or by force.
func (h *history) end(id string, state driver.State) {
	if b, ok := h.believes[id]; ok && b.until > h.now && state != driver.Released {
		h.Fatalf("%s holds, and is told %v at its end", id, state)
	}
	delete(h.believes, id)
	delete(h.arrivals, id)
}

func (h *history) actions(policies ...driver.Policy) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": h.consistent,
		"newcomer": func(t *rapid.T) {
			req := h.request()
			req.Policy = rapid.SampledFrom(policies).Draw(t, "policy")
			h.known = append(h.known, req)
			h.acquire(req)
		},
		"again": func(t *rapid.T) {
			h.acquire(h.pick(t))
		},
		"downgrade": func(t *rapid.T) {
			req := h.pick(t)
			p := h.r.inside(req.ID)
			if p == nil || p.Expiry <= h.now/1000 || p.Mode != driver.Exclusive {
				t.Skip("not inside for itself") //nolint:forbidigo // the action does not apply, and rapid draws another
			}
			req.Mode, req.Reenter, req.Limit = driver.Shared, false, h.limit
			h.acquire(req)
			if p := h.r.inside(req.ID); p.Mode == driver.Shared {
				i := slices.IndexFunc(h.known, func(r driver.Request) bool { return r.ID == req.ID })
				h.known[i] = req
				h.nobodyWaitsBeforeAnOpenDoor("")
			}
		},
		"resize": func(t *rapid.T) {
			limit := rapid.IntRange(1, 5).Draw(t, "limit")
			reply, wakes, err := Acquire(&h.r, driver.Request{Key: "k", ID: "resizer", Resize: true, Limit: limit}, h.now)
			if err == nil && reply.State == driver.Resized {
				h.limit = limit
				h.judgeWakes(wakes, "")
				h.nobodyWaitsBeforeAnOpenDoor("")
			}
		},
		"renew": func(t *rapid.T) {
			req := h.pick(t)
			ref := driver.Ref{Key: "k", ID: req.ID, TTL: duration(t, "ttl"), TicketTTL: duration(t, "wait"), HintAddress: req.HintAddress}
			inside := h.r.inside(req.ID) != nil
			if sometimes(t, "raise") {
				ref.Token = h.last + rapid.Int64Range(-3, 3).Draw(t, "token")
				h.raise(req.ID, ref.Token)
			}
			reply, wakes := Renew(&h.r, ref, h.now)
			h.judge(req, reply, ref.TTL, wakes)
			if !inside {
				h.nobodyIsPassed(req, reply, "")
			}
		},
		"release": func(t *rapid.T) {
			req := h.pick(t)
			ref := driver.Ref{Key: "k", ID: req.ID}
			if sometimes(t, "keep") {
				ref.KeepClosed = duration(t, "kept")
			}
			if rapid.Bool().Draw(t, "forbid") {
				ref.RejectIDFor = time.Hour
				h.over[req.ID] = h.now + ref.RejectIDFor.Microseconds() - 1000
			}
			reply, wakes := Release(&h.r, ref, h.now)
			h.end(req.ID, reply.State)
			delete(h.tokens, req.ID)
			if reply.State == driver.Released && ref.KeepClosed > 0 {
				h.closed = max(h.closed, h.now+ref.KeepClosed.Microseconds()-1000)
			}
			h.judgeWakes(wakes, req.ID)
			h.nobodyWaitsBeforeAnOpenDoor("")
		},
		"break": func(t *rapid.T) {
			req := h.pick(t)
			reply, wakes := Break(&h.r, "k", req.ID, "because", h.now)
			h.end(req.ID, reply.State)
			if reply.State != driver.Gone {
				h.over[req.ID] = max(h.over[req.ID], h.now+59*second)
				h.nobodyWaitsBeforeAnOpenDoor("")
			}
			h.judgeWakes(wakes, "")
		},
		"wait": func(t *rapid.T) {
			h.now += rapid.Int64Range(1, 2*second).Draw(t, "time")
			h.forgetTheExpired()
		},
	}
}

// forgetTheExpired drops leases and tickets that have ended, whose ids a
// repeated request may use anew.
func (h *history) forgetTheExpired() {
	for id := range h.tokens {
		if p := h.r.inside(id); p == nil || p.Expiry <= h.now/1000 {
			delete(h.tokens, id)
		}
	}
	for id := range h.arrivals {
		if q := h.r.ticket(id); q == nil || q.Expiry <= h.now/1000 {
			delete(h.arrivals, id)
		}
	}
}

// settle lets time pass until nothing is left, and checks that this comes to
// an end.
func (h *history) settle() {
	start := h.now
	for range len(h.r.Queue) + 10 {
		if h.r.Idle(h.now) {
			break
		}
		h.now = max(h.now, h.r.Until()*1000)
		_, _ = Renew(&h.r, driver.Ref{Key: "k", ID: "nobody"}, h.now)
	}
	if took := h.now - start; !h.r.Idle(h.now) || took > 2*3600*second {
		h.Fatalf("left after %v: %+v", micros(took), h.r)
	}
	reply, _, err := Acquire(&h.r, driver.Request{Key: "k", ID: "last", TTL: time.Second}, h.now)
	if err != nil || reply.State != driver.Granted || reply.Token <= h.last {
		h.Fatalf("the empty room answers %+v, %v; the last token was %d", reply, err, h.last)
	}
}

func TestRoom_KeepsItsPromisesUnderAnyHistory(t *testing.T) {
	for name, policies := range map[string][]driver.Policy{
		"FIFO": {driver.FIFO},
		"any":  {driver.FIFO, driver.Barging, driver.WritersFirst, driver.ReadersFirst},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h := newHistory(t)
				t.Repeat(h.actions(policies...))
				h.settle()
			})
		})
	}
}

// After Until a record means nothing: a store may forget all but its token.
func TestUntil_IsWhenARecordMeansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		t.Repeat(h.actions(driver.FIFO, driver.Barging))
		h.now = max(h.now, h.r.Until()*1000)
		reply, _, err := Acquire(&h.r, driver.Request{Key: "k", ID: "last", TTL: time.Second}, h.now)
		if err != nil || reply.State != driver.Granted {
			t.Fatalf("%+v, %v", reply, err)
		}
	})
}
