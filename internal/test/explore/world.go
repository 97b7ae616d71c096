package explore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// epoch is the time, in µs, at which every exploration begins.
const epoch = 1_700_000_000_000_000

// raisedBy is the number that renewals add to tokens.
const raisedBy = 1_000_000

// ways bounds the visits of each lease.
const ways = 3

// key is the lock of all explorations.
const key = "k"

// world is the state of a lock, its parties and the network. A party has the answers it got,
// with times of its own clock, and the promises that follow from them.
type world struct {
	*Scenario
	now     int64 // µs, of all clocks
	record  room.Record
	parties []party
	net     []message
	faults  int // that may still happen
	dead    []lease
	deposit int64 // the greatest token so far
	limit   int   // that the parties ask for
	closed  int64 // µs; a release keeps the room closed at least until then
	wrong   string

	noting bool // calls and text are kept
	calls  []Call
	text   []string
}

// lease names one attempt of a party.
type lease struct{ who, attempt uint8 }

// ids are the names of attempts, addresses the addresses of parties for hints.
var (
	ids       [4][8]string
	addresses [4]string
	byID      = make(map[string]lease)
)

func init() {
	for who := range ids {
		addresses[who] = string(rune('A' + who))
		for attempt := range ids[who] {
			id := fmt.Sprintf("%c%d", 'a'+who, attempt)
			ids[who][attempt] = id
			byID[id] = lease{uint8(who), uint8(attempt)} //nolint:gosec // small
		}
	}
}

// phase is the progress of an attempt.
type phase uint8

const (
	idle    phase = iota
	asking        // request sent; no answer yet, or the answer was to ask again
	waiting       // the answer was queued
	holding       // the answer was granted
	ending        // over, but perhaps not on the store
)

// party is a user of the lock, with one attempt at a time.
type party struct {
	phase      phase
	attempt    uint8
	kind       uint8
	unanswered bool // a request for this lease may still be on its way
	repeated   bool // a release was not answered
	reads      bool // relies only on being a reader
	told       bool // has been granted the lease
	broken     bool // by an operator, and perhaps not informed
	token      int64
	until      int64 // µs; end of its lease
	lag        int64 // µs; how old the last answer was when it was given
	clock      int64 // µs; the store's clock then
	reader     bool  // an answer was that it is a reader
	visits     visits

	arrival int   // in the queue; 0 if not queued
	place   int64 // µs; its ticket is kept until then, unless it is called
	owed    int64 // µs; it has to confirm by then; 0 if not called
}

// visits is the set of visits by which a party has asked: each one once.
type visits struct {
	used   uint8
	untold uint8 // of which the client has gone
	undone uint8
	last   uint8 // the last that asked; it gets the hints
}

// message is a request or a hint, on its way.
type message struct {
	op      op
	lease   lease
	kind    uint8
	visit   uint8
	forbids bool
	lost    bool  // the release of a lease that was lost
	sent    int64 // µs
	hint    driver.Hint
}

type op uint8

const (
	acquire op = iota
	renew
	release
	undo // release of the grant to a visit
	downgrade
	raise
	breakUp
	resize
	hint
)

var opNames = [...]string{"acquire", "renew", "release", "undo", "downgrade", "raise", "break", "resize", "hint"}

// Call is one call of a store, and the answer of the rule.
type Call struct {
	Now   time.Duration // since the beginning
	Op    string        // Acquire, Renew, Release, Break
	Req   driver.Request
	Ref   driver.Ref
	Reply driver.Reply
	Wakes []room.Wake
	Err   error
	Over  bool            // the caller's lease ends in this millisecond
	Look  driver.Snapshot // after the call
}

func newWorld(s *Scenario) *world {
	w := &world{Scenario: s, now: epoch, parties: make([]party, len(s.Parties)), faults: s.Faults}
	for _, k := range slices.Concat(s.Parties...) {
		w.limit = max(w.limit, k.Limit)
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.record = w.copied()
	c.parties = slices.Clone(w.parties)
	c.net = slices.Clone(w.net)
	c.dead = slices.Clone(w.dead)
	return &c
}

// copied returns a deep copy of the record.
func (w *world) copied() room.Record {
	r := w.record
	r.Inside, r.Queue = slices.Clone(r.Inside), slices.Clone(r.Queue)
	r.Marks, r.Spent = maps.Clone(r.Marks), maps.Clone(r.Spent)
	return r
}

func (w *world) ms() int64 { return w.now / 1000 }

func (w *world) mine(who int) lease { return lease{uint8(who), w.parties[who].attempt} } //nolint:gosec // small

func id(l lease) string { return ids[l.who][l.attempt] }

// asks returns the request of a lease.
func (w *world) asks(m message) driver.Request {
	req := w.Parties[m.lease.who][m.kind]
	req.Key, req.ID = key, id(m.lease)
	if req.HintAddress != "" {
		req.HintAddress = addresses[m.lease.who]
	}
	if req.Mode == driver.Shared && req.Limit > 0 {
		req.Limit = w.limit
	}
	if req.Owner == "" {
		req.Owner = addresses[m.lease.who]
	}
	if w.Visits {
		req.Visit = visitName(m.visit)
	}
	req.SingleUseID = w.Doubles
	return req
}

func visitName(n uint8) string { return [...]string{"v/1", "v/2", "w"}[n] }

// refers returns the ref of a message.
func (w *world) refers(m message) driver.Ref {
	req := w.Parties[m.lease.who][m.kind]
	ref := driver.Ref{Key: key, ID: id(m.lease)}
	switch m.op {
	case renew, raise:
		ref.TTL, ref.TicketTTL = req.TTL, req.TicketTTL
		if req.HintAddress != "" {
			ref.HintAddress = addresses[m.lease.who]
		}
		if w.Visits {
			ref.Visit = "renewer"
		}
		if m.op == raise {
			ref.Token = w.parties[m.lease.who].token + raisedBy
		}
	case undo:
		ref.Visit = visitName(m.visit)
	case release:
		if w.Keeps && !m.lost {
			ref.KeepClosed = keep
		}
		if m.forbids {
			ref.RejectIDFor, ref.SingleUseID = forbid, w.Doubles
		}
	}
	return ref
}

// deliver passes a message to the store, and the answer to the party if answered.
func (w *world) deliver(m message, answered bool) {
	before := len(w.record.Inside)
	was := make([]string, 0, 4)
	c := Call{Now: w.since()}
	waited := slices.ContainsFunc(w.record.Queue, func(p room.Party) bool { return p.ID == id(m.lease) && p.Expiry > w.ms() })
	for i := range before {
		in := &w.record.Inside[i]
		was = append(was, in.ID)
		c.Over = c.Over || in.ID == id(m.lease) && in.Expiry == w.ms()
	}
	c.Over = c.Over || w.wasOver(id(m.lease))
	now := w.now
	switch m.op {
	case acquire:
		if m.lease == w.mine(int(m.lease.who)) {
			w.parties[m.lease.who].visits.last = m.visit
		}
		c.Op, c.Req = "Acquire", w.asks(m)
		c.Reply, c.Wakes, c.Err = room.Acquire(&w.record, c.Req, now)
	case downgrade:
		c.Op, c.Req = "Acquire", w.asks(m)
		c.Req.Downgrade, c.Req.Mode, c.Req.Reenter = true, driver.Shared, false
		c.Reply, c.Wakes, c.Err = room.Acquire(&w.record, c.Req, now)
	case resize:
		c.Op, c.Req = "Acquire", driver.Request{Key: key, ID: "resizer", Mode: driver.Shared, TTL: leaseTTL, Resize: true, Limit: w.Resize}
		c.Reply, c.Wakes, c.Err = room.Acquire(&w.record, c.Req, now)
	case renew, raise:
		c.Op, c.Ref = "Renew", w.refers(m)
		c.Reply, c.Wakes = room.Renew(&w.record, c.Ref, now)
	case release, undo:
		c.Op, c.Ref = "Release", w.refers(m)
		c.Reply, c.Wakes = room.Release(&w.record, c.Ref, now)
	case breakUp:
		c.Op, c.Ref = "Break", driver.Ref{Key: key, ID: id(m.lease)}
		c.Reply, c.Wakes = room.Break(&w.record, key, c.Ref.ID, "because", now)
	}
	if w.noting {
		c.Look = room.Look(&w.record, key, now)
		w.calls = append(w.calls, c)
		w.text = append(w.text, fmt.Sprintf("      store: %s", c.say()))
	}
	w.judgeStore(m, &c, was, waited)
	w.wake(c.Wakes)
	if answered {
		w.deliverAnswer(m, &c)
	}
}

// wasOver reports whether a call of this millisecond found that a lease ends
// in it. The rule then has removed it; a store may still have it.
func (w *world) wasOver(id string) bool {
	return slices.ContainsFunc(w.calls, func(c Call) bool {
		return c.Over && cmp.Or(c.Req.ID, c.Ref.ID) == id && c.Now.Milliseconds() == w.since().Milliseconds()
	})
}

func (w *world) since() time.Duration { return time.Duration(w.now-epoch) * time.Microsecond }

// wake sends hints. Their receivers have to confirm in time.
func (w *world) wake(wakes []room.Wake) {
	for _, wake := range wakes {
		l, ok := byID[wake.Hint.ID]
		if !ok || addresses[l.who] != wake.Address && wake.Address != room.Everybody {
			w.fail("a hint goes to no party: %+v", wake)
			continue
		}
		p := &w.parties[l.who]
		by := w.ms()*1000 + window.Microseconds()
		switch {
		case wake.Hint.Kind == driver.HintBroken:
		case l != w.mine(int(l.who)) || p.phase == idle: // no party confirms
		case p.owed == 0 || by < p.owed || wake.Hint.Kind == driver.HintGranted:
			p.owed = by
		}
		if l == w.mine(int(l.who)) && (p.phase == asking || p.phase == waiting || wake.Hint.Kind == driver.HintBroken && p.phase == holding) {
			m := message{op: hint, lease: l, hint: wake.Hint, sent: w.now, visit: p.visits.last}
			if wake.Hint.Kind == driver.HintAsk {
				continue // a party may ask at any time
			}
			w.net = append(w.net, m)
		}
	}
}

// deliverHint delivers a hint to a party, which handles it like the engine.
func (w *world) deliverHint(m message) {
	p := &w.parties[m.lease.who]
	if m.lease != w.mine(int(m.lease.who)) {
		return
	}
	if m.hint.Kind == driver.HintBroken {
		if p.phase == holding {
			p.phase = idle
		}
		return
	}
	if p.phase != waiting || p.clock == 0 || m.hint.Clock.Microseconds() < p.clock {
		return
	}
	until := m.hint.Clock.Microseconds() - p.lag + timing.Life(m.hint.ConfirmWindow, drift).Microseconds()
	if until > w.now {
		w.setHolding(p, m.hint.Token, until)
	}
}

// setHolding records that a party holds the lock until the given time.
func (w *world) setHolding(p *party, token, until int64) {
	if p.told && p.token != token && !w.Raises {
		w.fail("the token of a lease was %d, and is %d now", p.token, token)
	}
	if p.phase != holding {
		p.phase, p.until = holding, until
	}
	p.told, p.token, p.until = true, token, max(p.until, until)
}

// deliverAnswer delivers an answer to a party.
func (w *world) deliverAnswer(m message, c *Call) {
	if m.op == breakUp || m.op == resize {
		if m.op == resize && c.Err == nil && c.Reply.State == driver.Resized {
			w.limit = w.Resize
		}
		return
	}
	p := &w.parties[m.lease.who]
	if m.lease != w.mine(int(m.lease.who)) {
		return
	}
	if m.op == acquire && w.Visits {
		p.visits.untold &^= 1 << m.visit
	}
	w.judgeReply(m, c, p)
	life := m.sent + timing.Life(leaseTTL, drift).Microseconds()
	state := c.Reply.State
	switch {
	case m.op == undo || p.phase == idle:
	case m.op == release:
		p.phase = idle
		w.bury(m)
	case p.phase == ending: // an earlier request
	case c.Err != nil && m.op == acquire:
		p.phase = idle
	case c.Err != nil && m.op == downgrade:
		p.reads = p.unanswered
	case m.op == downgrade && state == driver.Granted:
		p.until, p.reader = max(p.until, life), true
	case m.op == downgrade:
		p.phase = idle
	case state == driver.Granted && life > w.now && (p.phase != holding || m.op != acquire || w.Visits):
		w.setHolding(p, c.Reply.Token, life)
		w.note(p, m)
	case state == driver.Queued && p.phase != holding:
		p.phase = waiting
		w.note(p, m)
	case state == driver.Busy && p.phase != holding:
		p.phase = idle
		if p.unanswered {
			p.phase = ending
		}
	case state == driver.Gone && c.Reply.Broken:
		p.phase = idle
	case state == driver.Gone && p.phase == holding:
		p.phase = idle
	case state == driver.Gone && m.op == acquire:
		p.phase = ending
	case state == driver.Gone:
		p.phase = asking
	}
}

// note records how old an answer is, which matters for later hints.
func (w *world) note(p *party, m message) { p.lag, p.clock = w.now-m.sent, w.now }

// bury records that an id must not appear again.
func (w *world) bury(m message) { w.dead = append(w.dead, m.lease) }

// pass advances the time to at. A party with an expired lease has then lost it.
func (w *world) pass(at int64) {
	w.now = at
	for i := range w.parties {
		p := &w.parties[i]
		if p.phase == holding && p.until <= w.now {
			p.phase = ending
		}
	}
}

// next returns the next time at which a deadline ends, or 0.
func (w *world) next() (at int64) {
	consider := func(us int64) {
		if us > w.now && (at == 0 || us < at) && us < w.now+int64(time.Second/time.Microsecond) {
			at = us
		}
	}
	for _, p := range w.record.Inside {
		consider(p.Expiry * 1000)
		consider((p.Expiry + p.Delay) * 1000)
	}
	for _, p := range w.record.Queue {
		consider(p.Expiry * 1000)
		consider((p.Called + p.Window) * 1000)
	}
	consider(w.record.Closed * 1000)
	for _, p := range w.parties {
		if p.phase == holding {
			consider(p.until)
		}
	}
	return at
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

func (c *Call) say() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %v %s", c.Now, c.Op)
	if c.Op == "Acquire" {
		fmt.Fprintf(&b, " %s", c.Req.ID)
		if c.Req.Visit != "" {
			fmt.Fprintf(&b, " by %s", c.Req.Visit)
		}
	} else {
		fmt.Fprintf(&b, " %s", c.Ref.ID)
	}
	if c.Err != nil {
		fmt.Fprintf(&b, ": %v", c.Err)
		return b.String()
	}
	fmt.Fprintf(&b, ": %s", stateNames[c.Reply.State])
	if c.Reply.Token > 0 {
		fmt.Fprintf(&b, ", token +%d", c.Reply.Token-epoch)
	}
	if c.Reply.Position > 0 {
		fmt.Fprintf(&b, ", place %d, next in %v", c.Reply.Position, c.Reply.RetryAfter)
	}
	for _, wake := range c.Wakes {
		fmt.Fprintf(&b, "; %s receives %s", wake.Address, hintNames[wake.Hint.Kind])
	}
	for _, h := range c.Look.Holders {
		fmt.Fprintf(&b, "; %s is inside for %v", h.ID, h.Remaining)
	}
	for _, q := range c.Look.Waiters {
		fmt.Fprintf(&b, "; %s waits for %v", q.ID, q.Remaining)
	}
	return b.String()
}

var (
	stateNames = [...]string{"gone", "busy", "queued", "granted", "released", "left", "resized"}
	hintNames  = [...]string{"a hint to ask", "the hint granted", "the hint broken", "the hint that hints were lost"}
)
