package room

import (
	"encoding/json"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/driver"
)

// judge compares an answer, and the hints that went out with it, with what
// everybody believes. Those who were let in before the asker have the smaller
// tokens.
func (h *history) judge(req driver.Request, reply driver.Reply, ttl time.Duration, wakes []Wake) {
	after := slices.IndexFunc(wakes, func(w Wake) bool {
		return w.Hint.Kind == driver.HintGranted && reply.State == driver.Granted && w.Hint.Token > reply.Token
	})
	if after < 0 {
		after = len(wakes)
	}
	h.judgeWakes(wakes[:after], req.ID)
	h.judgeReply(req, reply, ttl)
	h.judgeWakes(wakes[after:], req.ID)
}

func (h *history) judgeReply(req driver.Request, reply driver.Reply, ttl time.Duration) {
	if reply.Clock != micros(h.now) {
		h.Fatalf("clock %v, want %v", reply.Clock, micros(h.now))
	}
	if reply.State != driver.Granted {
		if reply.State == driver.Queued && h.arrivals[req.ID] == 0 {
			h.arrived++
			h.arrivals[req.ID] = h.arrived
		}
		if b, ok := h.believes[req.ID]; ok && b.until > h.now {
			h.Fatalf("%s holds, and is told %+v", req.ID, reply)
		}
		if reply.State == driver.Queued && (reply.Position < 1 || reply.Position > len(h.r.Queue)) {
			h.Fatalf("place %d of %d", reply.Position, len(h.r.Queue))
		}
		return
	}
	if h.over[req.ID] > h.now {
		h.Fatalf("%s came back after its end", req.ID)
	}
	reentry := h.judgeToken(req, reply.Token)
	h.judgePlaces(req)
	if mine := h.believes[req.ID]; mine.until <= h.now && !reentry && h.closed > h.now {
		h.Fatalf("%s is let in while the room is kept closed", req.ID)
	}
	for id, b := range h.believes {
		switch {
		case id == req.ID:
		case b.until > h.now && !compatible(b.Request, req):
			h.Fatalf("%s is let in while %s believes to hold", req.ID, id)
		case b.end <= h.now && b.end+b.LockDelay.Microseconds() > h.now && h.believes[req.ID].until <= h.now && !reentry:
			h.Fatalf("%s is let in while the room is closed after %s", req.ID, id)
		}
	}
	// The store counts whole milliseconds.
	old := h.believes[req.ID]
	h.believes[req.ID] = belief{
		req, max(old.until, h.now+ttl.Microseconds()-1000), max(old.end, h.now/1000*1000+ttl.Microseconds()),
	}
}

// judgePlaces checks that a newcomer fits beside those who believe to be in.
func (h *history) judgePlaces(req driver.Request) {
	if req.Mode != driver.Shared || h.r.Limit == 0 || h.believes[req.ID].end > h.now {
		return
	}
	used := max(req.Weight, 1)
	for id, b := range h.believes {
		if id != req.ID && b.until > h.now && b.Mode == driver.Shared {
			used += max(b.Weight, 1)
		}
	}
	if used > h.r.Limit {
		h.Fatalf("%s is let in: %d places of %d are taken", req.ID, used, h.r.Limit)
	}
}

func compatible(a, b driver.Request) bool {
	if a.Mode == driver.Shared && b.Mode == driver.Shared {
		return true
	}
	return a.Mode == b.Mode && a.Reenter && b.Reenter && a.Owner == b.Owner
}

// judgeToken reports whether the token is that of somebody inside.
func (h *history) judgeToken(req driver.Request, token int64) (reentry bool) {
	if t, ok := h.tokens[req.ID]; ok {
		if t != token {
			h.Fatalf("%s has token %d, then %d", req.ID, t, token)
		}
		return true
	}
	h.tokens[req.ID] = token
	for i := range h.r.Inside {
		in := &h.r.Inside[i]
		reentry = reentry || in.ID != req.ID && in.Token == token && in.Reenter && req.Reenter && in.Owner == req.Owner
	}
	if !reentry && token <= max(h.last, req.MinToken) {
		h.Fatalf("token %d follows %d, minimum %d", token, h.last, req.MinToken)
	}
	h.last = max(h.last, token)
	return reentry
}

// judgeWakes takes note of hand-overs, and checks that hints tell the truth to
// whom they concern.
func (h *history) judgeWakes(wakes []Wake, caller string) {
	for _, w := range wakes {
		switch w.Hint.Kind {
		case driver.HintGranted:
			p := h.r.inside(w.Hint.ID)
			if p == nil || p.Token != w.Hint.Token || p.Confirmed || w.Hint.ID == caller || p.Notify != w.Address {
				h.Fatalf("hint %+v about %+v", w, p)
			}
			reply := driver.Reply{State: driver.Granted, Token: p.Token, Holds: 1, Clock: w.Hint.Clock}
			h.judgeReply(h.about(p.ID), reply, w.Hint.ConfirmWindow)
			h.nobodyIsPassed(h.about(p.ID), reply, caller)
		case driver.HintAsk:
			if h.r.ticket(w.Hint.ID) == nil || w.Hint.ID == caller {
				h.Fatalf("hint %+v, but the queue is %+v", w, h.r.Queue)
			}
		}
	}
}

func (h *history) about(id string) driver.Request {
	i := slices.IndexFunc(h.known, func(r driver.Request) bool { return r.ID == id })
	return h.known[i]
}

// nobodyIsPassed checks the order: whoever has entered leaves no one behind
// whom it had to let pass, but for the one that has come since.
func (h *history) nobodyIsPassed(req driver.Request, reply driver.Reply, since string) {
	if reply.State != driver.Granted || req.Policy == driver.Barging || reply.Holds > 1 {
		return
	}
	for _, q := range h.r.Queue {
		other := h.about(q.ID)
		if q.ID == since {
			continue
		}
		if favoured(other) && !favoured(req) || favoured(other) == favoured(req) && h.before(q.ID, req.ID) {
			h.Fatalf("%+v entered before %+v", req, other)
		}
	}
}

// favoured requests pass the others of the queue.
func favoured(req driver.Request) bool {
	return req.Policy == driver.WritersFirst && req.Mode == driver.Exclusive ||
		req.Policy == driver.ReadersFirst && req.Mode == driver.Shared
}

// before reports whether a came before b, which may have entered without a wait.
func (h *history) before(a, b string) bool {
	return h.arrivals[b] == 0 || h.arrivals[a] < h.arrivals[b]
}

// nobodyWaitsBeforeAnOpenDoor checks that the head of the queue is let in, or
// called, if it can be.
func (h *history) nobodyWaitsBeforeAnOpenDoor(caller string) {
	s := &scene{Record: &h.r, now: h.now, ms: h.now / 1000}
	if len(h.r.Queue) == 0 {
		return
	}
	head := h.r.Queue[0]
	if s.oversized(&head) && !s.taken() {
		h.Fatalf("%+v waits for more than there will ever be", head)
	}
	if !s.fits(&head) || head.Notify == "" || head.ID == caller {
		return
	}
	if head.Policy != driver.Barging || h.r.Head != head.ID || h.r.When > s.ms {
		h.Fatalf("%+v waits before an open door", head)
	}
}

// consistent checks what must always hold of a record.
func (h *history) consistent(*rapid.T) {
	h.forgetTheExpired()
	ids := map[string]bool{}
	shared, exclusive := 0, 0
	for _, p := range h.r.Inside {
		ids[p.ID] = true
		if p.Expiry <= h.now/1000 {
			continue
		}
		if !p.Confirmed && p.Notify == "" {
			h.Fatalf("%+v was handed the room and cannot know", p)
		}
		if p.Mode == driver.Exclusive {
			exclusive++
		} else {
			shared++
		}
	}
	if exclusive > 0 && shared > 0 {
		h.Fatalf("writers beside readers: %+v", h.r.Inside)
	}
	for i, p := range h.r.Queue {
		if ids[p.ID] {
			h.Fatalf("%s is twice in the room", p.ID)
		}
		ids[p.ID] = true
		if i > 0 && h.r.Queue[i-1].Rank >= p.Rank {
			h.Fatalf("the queue is out of order: %+v", h.r.Queue)
		}
	}
	var copied Record
	text, _ := json.Marshal(&h.r)
	if err := json.Unmarshal(text, &copied); err != nil {
		h.Fatal(err)
	}
	if again, _ := json.Marshal(&copied); string(again) != string(text) {
		h.Fatalf("a stored record differs:\n%s\n%s", text, again)
	}
}
