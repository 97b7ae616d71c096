package explore

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/leasehold-go/leasehold/internal/room"
)

// far is, in ms, further ahead than any exploration gets.
const far = 30_000

var seed = maphash.MakeSeed()

// canon writes states so that states are equal if they differ only in the time, in the values
// of tokens in the same order, and in the names of parties of one kind.
type canon struct {
	*world
	b      []byte
	names  []uint8 // of parties
	tokens []int64 // in order
}

// hash returns the same value for equivalent states.
func (w *world) hash(orders [][]uint8) uint64 {
	c := canon{world: w, b: make([]byte, 0, 512)}
	c.order()
	var least []byte
	for i, names := range orders {
		c.names, c.b = names, c.b[:0]
		c.write()
		if i == 0 || bytes.Compare(c.b, least) < 0 {
			least = append(least[:0], c.b...)
		}
	}
	return maphash.Bytes(seed, least)
}

// order sorts the tokens that the store or a party has.
func (c *canon) order() {
	c.tokens = append(c.tokens, c.record.Token, c.deposit)
	for _, p := range c.record.Inside {
		c.tokens = append(c.tokens, p.Token)
	}
	for _, p := range c.parties {
		if p.phase == holding {
			c.tokens = append(c.tokens, p.token)
		}
	}
	for _, m := range c.net {
		if m.op == hint {
			c.tokens = append(c.tokens, m.hint.Token)
		}
	}
	slices.Sort(c.tokens)
	c.tokens = slices.Compact(c.tokens)
}

func (c *canon) int(n int64) { c.b = binary.AppendVarint(c.b, n) }

func (c *canon) bool(v bool) {
	if v {
		c.b = append(c.b, 1)
	} else {
		c.b = append(c.b, 0)
	}
}

// ends writes a time in ms that matters while it lies ahead.
func (c *canon) ends(ms int64) { c.int(min(max(ms-c.ms(), 0), far)) }

// until writes a time in µs that matters while it lies ahead.
func (c *canon) until(us int64) { c.int(max(us-c.now, 0)) }

func (c *canon) token(t int64) {
	i, _ := slices.BinarySearch(c.tokens, t)
	c.int(int64(i))
}

func (c *canon) lease(l lease) {
	c.b = append(c.b, c.names[l.who]<<4|l.attempt)
}

func (c *canon) id(id string) {
	if l, ok := byID[id]; ok {
		c.lease(l)
		return
	}
	c.b = append(c.b, 0xff)
}

func (c *canon) write() {
	r := &c.record
	c.int(c.now % 1000)
	c.int(max(r.Token-c.now, -1))
	c.token(r.Token)
	c.token(c.deposit)
	c.int(int64(r.Limit))
	c.int(int64(c.limit))
	c.ends(r.Closed)
	c.until(c.closed)
	c.id(r.Head)
	c.ends(r.When)
	c.int(int64(c.faults))
	c.list(r.Inside)
	c.list(r.Queue)
	c.marks()
	c.users()
	c.messages()
	for _, l := range c.sorted(c.dead) {
		c.lease(l)
	}
}

// list writes the holders or the queue. Of a rank only the order matters, unless
// its party can be passed.
func (c *canon) list(parties []room.Party) {
	c.int(int64(len(parties)))
	for i := range parties {
		p := &parties[i]
		c.reach(p)
		c.id(p.ID)
		c.int(int64(p.Mode)<<8 | int64(p.Weight))
		c.bool(p.Rank > c.record.Seq+1)
		c.ends(p.Expiry)
		c.int(p.Delay)
		c.bool(p.Confirmed)
		c.bool(p.Notify != "")
		c.token(p.Token)
		c.ends(p.Called + p.Window)
		c.bool(p.Called > 0 && p.Expiry == p.Called+p.Window)
		c.b = append(c.b, p.Visit...)
		c.until(p.MinToken)
	}
}

// reach writes the state that matters if p was called or granted the lock and its process does not
// answer: which of the process's tickets came before that, and whether it has answered since.
func (c *canon) reach(p *room.Party) {
	handed, called := p.Token > 0, p.Called > 0 && p.Expiry == p.Called+p.Window
	if p.Confirmed || !handed && !called || p.Notify == "" {
		return
	}
	for i := range c.record.Queue {
		if q := &c.record.Queue[i]; q.Notify == p.Notify {
			c.bool(q.Arrival() <= p.Before)
		}
	}
	c.bool(c.record.Heard(p.Notify) > p.Expiry-p.Window)
}

func (c *canon) marks() {
	type mark struct {
		kind byte
		of   byte
		left int64
	}
	var all []mark
	for name, m := range c.record.Marks {
		if name[0] == '@' {
			continue // see reach
		}
		of := byte(0xff)
		if l, ok := byID[name[1:]]; ok {
			of = c.names[l.who]<<4 | l.attempt
		} else if i := slices.Index(addresses[:], name[1:]); i >= 0 {
			of = c.names[i]
		}
		all = append(all, mark{name[0], of, min(m.Until-c.ms(), far)})
	}
	for hash := range maps.Keys(c.record.Spent) {
		for who := range c.parties {
			for attempt := range ids[who] {
				if room.Hash(ids[who][attempt]) == hash {
					all = append(all, mark{'s', c.names[who]<<4 | byte(attempt), c.record.Spent[hash] & 1})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b mark) int {
		return int(a.kind)<<8 + int(a.of) - int(b.kind)<<8 - int(b.of)
	})
	c.int(int64(len(all)))
	for _, m := range all {
		c.b = append(c.b, m.kind, m.of)
		c.int(m.left)
	}
}

// users writes the state of the parties, by their names.
func (c *canon) users() {
	var arrivals []int
	for _, p := range c.parties {
		arrivals = append(arrivals, p.arrival)
	}
	slices.Sort(arrivals)
	arrivals = slices.Compact(arrivals)
	for name := range c.parties {
		p := &c.parties[slices.Index(c.names, uint8(name))] //nolint:gosec // small
		c.b = append(c.b, byte(p.phase), p.attempt, p.kind, p.visits.used, p.visits.untold, p.visits.undone, p.visits.last)
		c.bool(p.unanswered)
		c.bool(p.repeated)
		c.bool(p.reads)
		c.bool(p.reader)
		c.bool(p.told)
		c.bool(p.broken)
		if p.phase == holding {
			c.token(p.token)
			c.until(p.until)
		}
		if p.phase == waiting {
			c.int(p.lag)
			c.int(max(c.now-p.clock, 0))
		}
		at, _ := slices.BinarySearch(arrivals, p.arrival)
		c.int(int64(at))
		c.bool(p.arrival > 0)
		c.until(p.place)
		c.until(p.owed)
		c.bool(p.owed > 0)
	}
}

func (c *canon) messages() {
	var all [][]byte
	before := len(c.b)
	for _, m := range c.net {
		c.b = append(c.b, byte(m.op), m.kind, m.visit)
		c.lease(m.lease)
		c.bool(m.forbids)
		c.bool(m.lost)
		c.int(c.now - m.sent)
		if m.op == hint {
			c.int(int64(m.hint.Kind))
			c.token(m.hint.Token)
		}
		all = append(all, slices.Clone(c.b[before:]))
		c.b = c.b[:before]
	}
	slices.SortFunc(all, bytes.Compare)
	c.int(int64(len(all)))
	for _, m := range all {
		c.b = append(c.b, m...)
	}
}

func (c *canon) sorted(all []lease) []lease {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b lease) int {
		return int(c.names[a.who])<<8 + int(a.attempt) - int(c.names[b.who])<<8 - int(b.attempt)
	})
	return all
}

// orders returns the ways to name the parties: parties of one kind may be exchanged.
func (s *Scenario) orders() (all [][]uint8) {
	var extend func(names []uint8)
	extend = func(names []uint8) {
		who := len(names)
		if who == len(s.Parties) {
			all = append(all, slices.Clone(names))
			return
		}
		for name := range s.Parties {
			if !slices.Contains(names, uint8(name)) && s.same(who, name) { //nolint:gosec // small
				extend(append(names, uint8(name))) //nolint:gosec // small
			}
		}
	}
	extend(nil)
	return all
}

func (s *Scenario) same(a, b int) bool {
	return slices.EqualFunc(s.Parties[a], s.Parties[b], sameRequest)
}
