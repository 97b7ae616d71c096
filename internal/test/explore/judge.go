package explore

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// judgeStore checks the effects of a call on the store against the promises to the
// other parties. was names the holders before the call. waited reports whether the caller was
// in the queue.
func (w *world) judgeStore(m message, c *Call, was []string, waited bool) {
	w.depart(m, c)
	for i := range w.record.Inside {
		if in := &w.record.Inside[i]; !slices.Contains(was, in.ID) {
			w.judgeEntry(in, m)
		}
	}
	w.attend(m, c, waited)
	w.levels(m)
	// A renewal changes no wait: the waiters already have the time at which they ask.
	if alive := c.Reply.State == driver.Granted && slices.Contains(was, id(m.lease)); c.Err == nil && (!alive || m.op == downgrade) {
		w.judgeHead(m, c)
	}
}

// depart records that a party has left.
func (w *world) depart(m message, c *Call) {
	state := c.Reply.State
	if m.op == resize || m.lease != w.mine(int(m.lease.who)) || state != driver.Released && state != driver.Left {
		return
	}
	p, req := &w.parties[m.lease.who], w.Parties[m.lease.who][m.kind]
	p.arrival, p.place, p.owed = 0, 0, 0
	p.broken = p.broken || m.op == breakUp
	switch {
	case state != driver.Released:
	case m.op == breakUp:
		w.close(req.LockDelay)
	case m.op == release && w.Keeps && !m.lost:
		w.close(keep)
	}
}

// close records that no party may enter for d.
func (w *world) close(d time.Duration) {
	if d > 0 {
		w.closed = max(w.closed, w.ms()*1000+d.Microseconds())
	}
}

// attend records that a party has arrived, and how long its place is kept if it waits.
func (w *world) attend(m message, c *Call, waited bool) {
	if m.op == resize || m.op == breakUp || m.lease != w.mine(int(m.lease.who)) || c.Err != nil {
		return
	}
	p, req := &w.parties[m.lease.who], w.Parties[m.lease.who][m.kind]
	if p.phase == idle {
		return // no party waits for it
	}
	if state := c.Reply.State; state != driver.Queued && state != driver.Granted && w.placeUntil(p) <= w.now {
		p.arrival, p.place = 0, 0
	}
	switch c.Reply.State {
	case driver.Queued:
		if p.arrival == 0 || !waited {
			p.arrival = w.arrive()
		}
		p.place, p.owed = (w.ms()+req.TicketTTL.Milliseconds())*1000, 0
		if req.Policy == driver.Barging && c.Reply.RetryAfter > 0 {
			p.owed = w.ms()*1000 + (c.Reply.RetryAfter + window).Microseconds() // it has to ask by then
		}
	case driver.Granted:
		p.arrival, p.place, p.owed = 0, 0, 0
	}
}

// arrive returns the arrival number for the next waiter.
func (w *world) arrive() int {
	last := 0
	for _, p := range w.parties {
		last = max(last, p.arrival)
	}
	return last + 1
}

// levels records the greatest token after a raise, which all that share the token get.
func (w *world) levels(m message) {
	if m.op != raise {
		return
	}
	for _, in := range w.record.Inside {
		w.deposit = max(w.deposit, in.Token)
	}
}

// judgeEntry checks that a new holder may be one.
func (w *world) judgeEntry(in *room.Party, m message) {
	l, ok := byID[in.ID]
	if !ok {
		w.fail("%s is inside, but no party asked for it", in.ID)
		return
	}
	if slices.Contains(w.dead, l) {
		w.fail("%s is let in again, after its release was confirmed", in.ID)
	}
	if w.sharesToken(in) {
		return
	}
	if in.Token <= w.deposit {
		w.fail("%s enters with the token +%d after +%d", in.ID, in.Token-epoch, w.deposit-epoch)
	}
	if in.Token <= in.MinToken {
		w.fail("%s enters with the token +%d, and asked for more than +%d", in.ID, in.Token-epoch, in.MinToken-epoch)
	}
	w.deposit = max(w.deposit, in.Token)
	if w.now < w.closed {
		w.fail("%s enters while the room is kept closed", in.ID)
	}
	if l != w.mine(int(l.who)) || w.parties[l.who].phase == idle {
		return // its arrival is unknown
	}
	for who := range w.parties {
		other := &w.parties[who]
		if who == int(l.who) || other.arrival == 0 || w.placeUntil(other) <= w.now || w.isInside(who) {
			continue
		}
		if w.mustPass(in, w.parties[l.who].arrival, other, who) {
			w.fail("%s enters before %s, which has waited for longer", in.ID, id(w.mine(who)))
		}
	}
	if m.lease != l {
		p := &w.parties[l.who]
		p.arrival = 0
		p.place = (w.ms() + window.Milliseconds()) * 1000
	}
}

func (w *world) isInside(who int) bool {
	return slices.ContainsFunc(w.record.Inside, func(p room.Party) bool { return p.ID == id(w.mine(who)) })
}

// placeUntil returns until when a waiting party may rely on its place.
func (w *world) placeUntil(p *party) int64 {
	if p.owed > 0 {
		return min(p.place, p.owed)
	}
	return p.place
}

// sharesToken reports whether in shares the token of another holder with the same owner.
func (w *world) sharesToken(in *room.Party) bool {
	return slices.ContainsFunc(w.record.Inside, func(other room.Party) bool {
		return other.ID != in.ID && in.Reenter && other.Reenter && other.Owner == in.Owner && other.Mode == driver.Exclusive && other.Token == in.Token
	})
}

// mustPass reports whether the new holder in should have let a waiting party pass.
// It returns false if their policies differ.
func (w *world) mustPass(in *room.Party, arrived int, other *party, who int) bool {
	req := w.Parties[who][other.kind]
	if in.Policy == driver.Barging || req.Policy != in.Policy || req.Limit > 0 && req.Weight > w.record.Limit {
		return false
	}
	favours := func(mode driver.Mode) bool {
		return in.Policy == driver.WritersFirst && mode == driver.Exclusive || in.Policy == driver.ReadersFirst && mode == driver.Shared
	}
	if mine, theirs := favours(in.Mode), favours(req.Mode); mine != theirs {
		return theirs
	}
	return arrived == 0 || other.arrival < arrived
}

// judgeHead checks that the head of the queue is granted the lock, or called, if possible.
func (w *world) judgeHead(m message, c *Call) {
	if len(w.record.Queue) == 0 {
		return
	}
	head := &w.record.Queue[0]
	if head.Notify == "" || head.ID == id(m.lease) && m.op != resize || w.full(head) {
		return
	}
	if w.Doubles && c.Reply.State == driver.Gone && m.op == acquire {
		return // the answer to a used id does not change the record
	}
	switch called := w.record.Head == head.ID && w.record.When <= w.ms(); {
	case called && head.Policy == driver.Barging:
	case head.Policy != driver.Barging:
		w.fail("%s waits for a free lock", head.ID)
	default:
		w.fail("%s waits for a free lock, and was not called", head.ID)
	}
}

// full reports whether p cannot be admitted now.
func (w *world) full(p *room.Party) bool {
	if w.record.Closed > w.ms() {
		return true
	}
	used := int64(p.Weight)
	for _, in := range w.record.Inside {
		if in.Mode == driver.Exclusive && p.Mode == driver.Exclusive && in.Reenter && p.Reenter && in.Owner == p.Owner {
			return false
		}
		if in.Mode == driver.Exclusive || p.Mode == driver.Exclusive {
			return true
		}
		used += int64(in.Weight)
	}
	return w.record.Limit > 0 && used > int64(w.record.Limit)
}

// judgeReply checks an answer against the earlier answers to the party.
func (w *world) judgeReply(m message, c *Call, p *party) {
	state := c.Reply.State
	sure := p.phase == holding && p.until > w.now && !p.broken
	name := id(m.lease)
	for _, h := range c.Reply.Holders {
		if h.ID == name {
			w.fail("%s is refused because of itself", name)
		}
		if !slices.ContainsFunc(w.record.Inside, func(in room.Party) bool { return in.ID == h.ID && in.Expiry > w.ms() }) {
			w.fail("%s is refused because of %s, which is not inside", name, h.ID)
		}
	}
	if m.op == acquire && state == driver.Queued && c.Err == nil {
		w.judgeWait(m)
	}
	switch {
	case !sure:
	case m.op == renew || m.op == raise:
		if state != driver.Granted {
			w.fail("%s holds, and its renewal is answered %s", name, stateNames[state])
		} else if c.Reply.Token < p.token || c.Reply.Token != p.token && !w.Raises {
			w.fail("%s has the token +%d, but the answer has +%d", name, p.token-epoch, c.Reply.Token-epoch)
		}
	case m.op == release && state != driver.Released && !p.repeated:
		w.fail("%s holds, and its release is answered %s", name, stateNames[state])
	}
	if p.broken && (m.op == renew || m.op == release) && state == driver.Gone && !c.Reply.Broken && !p.repeated {
		w.fail("%s was broken, but the answer does not show it", name)
	}
}

// judgeWait checks that a party does not wait for a lease of its own owner.
func (w *world) judgeWait(m message) {
	req := w.Parties[m.lease.who][m.kind]
	own := func(p room.Party) bool {
		return p.Reenter && p.Owner == req.Owner && p.Mode != req.Mode
	}
	if req.Reenter && w.parties[m.lease.who].phase == asking && w.parties[m.lease.who].arrival > 0 && w.first(m) && slices.ContainsFunc(w.record.Inside, own) {
		w.fail("%s waits for its own owner", id(m.lease))
	}
}

// first reports whether this is the only request sent for its lease.
func (w *world) first(m message) bool { return m.sent == w.now && !w.parties[m.lease.who].unanswered }

// check checks the invariants of every moment.
func (w *world) check() {
	ms := w.ms()
	inside := func(name string) *room.Party {
		for i := range w.record.Inside {
			if p := &w.record.Inside[i]; p.ID == name && p.Expiry > ms {
				return p
			}
		}
		return nil
	}
	for who := range w.parties {
		p := &w.parties[who]
		if !w.sure(p) {
			continue
		}
		name := id(w.mine(who))
		in := inside(name)
		switch {
		case in == nil:
			w.fail("%s was granted the lock, and is not inside", name)
		case in.Mode == driver.Shared && !p.reads && w.Parties[who][p.kind].Mode == driver.Exclusive:
			w.fail("%s was granted the lock exclusively, and is a reader", name)
		case in.Token != p.token && !w.Raises:
			w.fail("%s got the token +%d, and has +%d", name, p.token-epoch, in.Token-epoch)
		}
		for other := range who {
			if w.sure(&w.parties[other]) && !w.compatible(who, other) {
				w.fail("%s and %s hold the lock at once", name, id(w.mine(other)))
			}
		}
	}
	w.checkPlaces()
	w.checkRecord(inside)
}

// sure reports whether a party holds the lock by the store's last answer, and no
// operator has ended its lease.
func (w *world) sure(p *party) bool { return p.phase == holding && p.until > w.now && !p.broken }

func (w *world) compatible(a, b int) bool {
	p, q := &w.parties[a], &w.parties[b]
	r, s := w.Parties[a][p.kind], w.Parties[b][q.kind]
	reads := func(p *party, r driver.Request) bool { return p.reads || r.Mode == driver.Shared }
	sure := func(p *party, r driver.Request) bool { return p.reader || r.Mode == driver.Shared }
	if reads(p, r) && reads(q, s) {
		return r.Limit == 0 || w.Resize > 0 || max(r.Weight, 1)+max(s.Weight, 1) <= w.limit
	}
	return r.Reenter && s.Reenter && r.Owner == s.Owner && !sure(p, r) && !sure(q, s)
}

// checkPlaces checks that waiters keep their places.
func (w *world) checkPlaces() {
	for who := range w.parties {
		p := &w.parties[who]
		if p.place == 0 || w.placeUntil(p) <= w.now || p.broken {
			continue
		}
		name := id(w.mine(who))
		is := func(p room.Party) bool { return p.ID == name && p.Expiry > w.ms() }
		oversized := w.Parties[who][p.kind].Limit > 0 && w.Parties[who][p.kind].Weight > w.record.Limit
		if !oversized && !slices.ContainsFunc(w.record.Queue, is) && !slices.ContainsFunc(w.record.Inside, is) {
			w.fail("%s was queued, and its place is gone", name)
		}
	}
}

// checkRecord checks that the record is valid.
func (w *world) checkRecord(inside func(string) *room.Party) {
	alone, beside := 0, 0
	for _, p := range w.record.Inside {
		switch {
		case p.Expiry <= w.ms():
		case p.Mode == driver.Exclusive && !p.Reenter:
			alone++
		default:
			beside++
		}
	}
	if alone > 1 || alone > 0 && beside > 0 {
		w.fail("an exclusive holder is not alone")
	}
	for i, p := range w.record.Queue {
		if i > 0 && w.record.Queue[i-1].Rank >= p.Rank {
			w.fail("the queue is out of order")
		}
		if inside(p.ID) != nil {
			w.fail("%s is inside, and waits", p.ID)
		}
		if slices.Contains(w.dead, byID[p.ID]) {
			w.fail("%s waits again, after its release was confirmed", p.ID)
		}
	}
	if w.record.Token > 0 && w.record.Token < w.deposit {
		w.fail("the record has the token +%d, and +%d was given", w.record.Token-epoch, w.deposit-epoch)
	}
}

// settles ends all parties and checks that all leases and places end, the record is empty, and
// a new party gets the lock with a greater token.
func (w *world) settles() {
	r := w.copied()
	now := w.now
	for range len(r.Queue) + 4 {
		if r.Idle(now) {
			break
		}
		now = max(now, r.Until()*1000)
		_, _ = room.Renew(&r, driver.Ref{Key: key, ID: "nobody"}, now)
	}
	if !r.Idle(now) || now > w.now+3*forbid.Microseconds() {
		w.fail("the record is not empty %d µs after all have gone: %+v", now-w.now, r)
		return
	}
	reply, _, err := room.Acquire(&r, driver.Request{Key: key, ID: "last", TTL: leaseTTL}, now)
	if err != nil || reply.State != driver.Granted || reply.Token <= w.deposit {
		w.fail("the last party is answered %+v, %v; the last token was +%d", reply, err, w.deposit-epoch)
	}
}
