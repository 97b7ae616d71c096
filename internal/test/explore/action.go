package explore

import (
	"fmt"
	"math/bits"
)

// action is one step of a trace.
type action struct {
	kind    actionKind
	message message
	at      int // of a message in the network
	us      int64
}

type actionKind uint8

const (
	ask     actionKind = iota // a request, answered at once
	askLost                   // a request that is not answered
	askLate                   // a request that is on its way
	arrives                   // a message in the network arrives, and is answered
	unheard                   // a message in the network arrives, and the answer is lost
	doubled                   // a message in the network arrives, and a copy stays there
	walk                      // a party gives up its request, or goes on without an answer
	dies                      // a party loses its state
	passes                    // time advances
)

// actions returns the possible next steps, always in the same order.
func (w *world) actions() (all []action) {
	for who := range w.parties {
		for _, m := range w.requests(who) {
			all = append(all, action{kind: ask, message: m})
			fails := !w.Narrow || m.op == acquire || m.op == release || m.op == undo
			if w.faults > 0 && fails {
				all = append(all, action{kind: askLost, message: m}, action{kind: askLate, message: m})
			}
		}
		p := &w.parties[who]
		switch {
		case p.phase == ending && p.repeated:
			all = append(all, action{kind: walk, message: message{lease: w.mine(who)}})
		case p.phase != idle && w.faults > 0:
			all = append(all, action{kind: dies, message: message{lease: w.mine(who)}})
		}
	}
	if w.Breaks {
		for who := range w.parties {
			if p := &w.parties[who]; p.phase != idle && !p.broken {
				all = append(all, action{kind: ask, message: message{op: breakUp, lease: w.mine(who), kind: p.kind, sent: w.now}})
			}
		}
	}
	if w.Resize > 0 && w.limit != w.Resize {
		all = append(all, action{kind: ask, message: message{op: resize, sent: w.now}})
	}
	for i, m := range w.net {
		if !w.undone(m) {
			all = append(all, action{kind: arrives, message: m, at: i})
		}
		if m.op != hint {
			all = append(all, action{kind: unheard, message: m, at: i})
			if w.Doubles && w.faults > 0 {
				all = append(all, action{kind: doubled, message: m, at: i})
			}
		}
	}
	if at := w.next(); at > 0 {
		if at-1 > w.now {
			all = append(all, action{kind: passes, us: at - 1 - w.now})
		}
		all = append(all, action{kind: passes, us: at - w.now})
	}
	return all
}

// undone reports whether m is an answer or a hint to a client that has gone.
func (w *world) undone(m message) bool {
	gone := w.parties[m.lease.who].visits
	if m.op == hint {
		return w.Visits && gone.untold&(1<<m.visit) != 0
	}
	return w.Visits && m.op == acquire && gone.undone&(1<<m.visit) != 0
}

// requests returns the requests that a party may send now.
func (w *world) requests(who int) (all []message) {
	p := &w.parties[who]
	m := message{lease: w.mine(who), kind: p.kind, sent: w.now}
	with := func(o op) {
		m := m
		m.op = o
		m.forbids = o == release && (p.unanswered || w.Doubles)
		m.lost = o == release && p.phase != holding
		all = append(all, m)
	}
	visits := func() {
		if !w.Visits {
			with(acquire)
			return
		}
		if v := uint8(bits.OnesCount8(p.visits.used)); v < ways { //nolint:gosec // small
			m.visit = v
			with(acquire)
		}
		m.visit = 0
	}
	switch p.phase {
	case idle:
		if int(p.attempt) >= w.Attempts {
			break
		}
		for kind := range w.Parties[who] {
			first := m
			first.op, first.kind, first.lease.attempt = acquire, uint8(kind), m.lease.attempt+1 //nolint:gosec // small
			all = append(all, first)
		}
	case asking:
		visits()
		if w.Visits {
			with(renew) // it may have been granted the lock
		}
		with(release)
	case waiting:
		visits()
		with(renew)
		with(release)
	case holding:
		with(renew)
		if w.Visits {
			visits()
		}
		if w.Downgrades && !p.reads && w.exclusive(who) {
			with(downgrade)
		}
		if w.Raises {
			with(raise)
		}
		with(release)
	case ending:
		with(release)
	}
	if w.Visits {
		for v := range uint8(ways) {
			if p.visits.untold&^p.visits.undone&(1<<v) != 0 {
				m.visit = v
				with(undo)
			}
		}
	}
	return all
}

func (w *world) exclusive(who int) bool { return w.Parties[who][w.parties[who].kind].Mode == 0 }

// do executes a step.
func (w *world) do(a action) {
	if w.noting {
		w.text = append(w.text, a.String())
	}
	m := a.message
	switch a.kind {
	case ask, askLost, askLate:
		w.begin(m)
		if a.kind != ask {
			w.faults--
			w.unconfirmed(m)
		}
		if a.kind == askLate {
			w.net = append(w.net, m)
		} else {
			w.deliver(m, a.kind == ask)
		}
	case arrives, unheard, doubled:
		w.net = append(w.net[:a.at:a.at], w.net[a.at+1:]...)
		if a.kind == doubled {
			w.faults--
			w.net = append(w.net, m)
		}
		if m.op == hint {
			w.deliverHint(m)
		} else {
			w.deliver(m, a.kind != unheard)
		}
	case walk, dies:
		p := &w.parties[m.lease.who]
		*p = party{attempt: p.attempt, kind: p.kind}
		if a.kind == dies {
			w.faults--
		}
	case passes:
		w.pass(w.now + a.us)
	}
	w.forget()
	w.check()
}

// begin updates the party that sends m.
func (w *world) begin(m message) {
	if m.op == breakUp || m.op == resize {
		return
	}
	p := &w.parties[m.lease.who]
	if p.phase == idle && m.op == acquire {
		*p = party{attempt: m.lease.attempt, kind: m.kind, phase: asking}
	}
	switch m.op {
	case acquire:
		p.visits.used |= 1 << m.visit
	case downgrade:
		p.reads = true
	case undo:
		p.visits.undone |= 1 << m.visit
	}
}

// unconfirmed updates the party after a request without an answer.
func (w *world) unconfirmed(m message) {
	if m.op == breakUp || m.op == resize {
		return
	}
	p := &w.parties[m.lease.who]
	switch m.op {
	case acquire:
		p.unanswered = true
		if w.Visits {
			p.visits.untold |= 1 << m.visit
		}
	case downgrade:
		p.unanswered = true
	case release:
		p.repeated = true
		p.phase = ending
	}
}

// forget drops hints that no party waits for.
func (w *world) forget() {
	kept := w.net[:0:0]
	for _, m := range w.net {
		if m.op == hint {
			p := &w.parties[m.lease.who]
			if m.lease != w.mine(int(m.lease.who)) || p.phase == idle || p.phase == ending {
				continue
			}
		}
		kept = append(kept, m)
	}
	w.net = kept
}

func (a action) String() string {
	m := a.message
	what := fmt.Sprintf("%s asks to %s", id(m.lease), opNames[m.op])
	switch m.op {
	case acquire:
		what = fmt.Sprintf("%s asks for the lock (request %d)", id(m.lease), m.kind)
		if m.visit > 0 {
			what += fmt.Sprintf(" by way %d", m.visit+1)
		}
	case undo:
		what = fmt.Sprintf("way %d undoes its request for %s", m.visit+1, id(m.lease))
	case breakUp:
		what = fmt.Sprintf("an operator breaks %s", id(m.lease))
	case resize:
		what = "an operator changes the limit"
	case hint:
		what = fmt.Sprintf("%s receives %s", id(m.lease), hintNames[m.hint.Kind])
	}
	switch a.kind {
	case askLost:
		return what + ", and the answer is lost"
	case askLate:
		return what + ", and the request is late"
	case arrives:
		return "it arrives late: " + what
	case unheard:
		return "it arrives late, and the answer is lost: " + what
	case doubled:
		return "it arrives, and will arrive again: " + what
	case walk:
		return id(m.lease) + " goes on without an answer"
	case dies:
		return id(m.lease) + " dies"
	case passes:
		return fmt.Sprintf("%d µs pass", a.us)
	}
	return what
}
