package redisroom

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/microscope"
)

// Offsets of scores and ranks, as in lua/room/1_state.lua.
const (
	lensBand   = int64(1) << 45
	lensBehind = int64(1) << 46
	lensAnchor = int64(1) << 49
	lensQueue  = int64(1) << 50
)

// kept is the parsed content of the keys of a room.
type kept struct {
	h, r, z microscope.Value
	c       microscope.Value
	spent   map[string]microscope.Value // T of each id
	scalars []string
	scores  map[string]int64
}

func keptIn(keys microscope.Keys) *kept {
	h := []byte(lensPrefix + lensKey)
	k := &kept{
		h: keys[string(h)], r: keys[string(appendSide(nil, h, recordKey))], z: keys[string(appendSide(nil, h, sortedKey))], c: keys[lensPrefix+counterKey],
		spent: make(map[string]microscope.Value), scores: make(map[string]int64),
	}
	for _, id := range []string{idA, idB, idC} {
		if v, ok := keys[string(appendSpent(nil, h, id))]; ok {
			k.spent[id] = v
		}
	}
	if k.r.Hash != nil {
		k.scalars = strings.Split(k.r.Hash["#"], " ")
	}
	for _, m := range k.z.Sorted {
		k.scores[m.Name] = int64(m.Score)
	}
	return k
}

func (k *kept) scalar(i int) int64 {
	n, err := strconv.ParseInt(k.scalars[i], 10, 64)
	if err != nil {
		return math.MinInt64
	}
	return n
}

// own returns the token that the room keeps itself.
func (k *kept) own() (token int64) {
	switch {
	case k.scalars != nil:
		token = k.scalar(0)
	case k.r.Text != nil:
		token, _ = strconv.ParseInt(*k.r.Text, 10, 64)
	case k.h.Text != nil:
		text := *k.h.Text
		token, _ = strconv.ParseInt(text[strings.LastIndexByte(text, ' ')+1:], 10, 64)
	}
	return token
}

// token returns the last token in the keys: that of the room, or the counter's if it is greater.
func (k *kept) token() int64 { return max(k.own(), k.counter()) }

func (k *kept) counter() int64 {
	n, _ := strconv.ParseInt(deref(k.c.Text), 10, 64)
	return n
}

// whole reports whether the fields of the party of every place inside and of every ticket are
// there.
func (k *kept) whole() bool {
	for name := range k.scores {
		if words := k.r.Hash[name[1:]]; (name[0] == 'i' || name[0] == 't') && strings.Count(words, " ") < 12 {
			return false
		}
	}
	return true
}

// sameKeys compares the keys after a step with the rule's record, word by word, and the times
// when they expire.
func sameKeys(from *situation, keys microscope.Keys, record *room.Record, now int64) error {
	k, ms := keptIn(keys), now/1000
	c := comparison{}
	c.spent(k, record, ms)
	switch {
	case k.r.Hash != nil:
		c.record(from, k, record, ms)
	case k.h.Text != nil:
		if k.h.At > ms { // it is over in this millisecond otherwise
			c.uncontended(k, record)
		}
	default:
		c.is("parties of a free room", len(record.Inside)+len(record.Queue), 0)
		c.is("its closing", record.Closed <= ms, true)
		c.is("whether a token is left that the counter covers", k.r.Text != nil && k.own() <= k.counter(), false)
	}
	c.is("the last token", k.token(), record.Token)
	c.lives(from, k, ms)
	if len(c) > 0 {
		return fmt.Errorf("keys: %s\n%s", strings.Join(c, "; "), show(keys))
	}
	return nil
}

// comparison collects differences.
type comparison []string

func (c *comparison) is(what string, got, want any) {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		*c = append(*c, fmt.Sprintf("%s is %s, want %s", what, g, w))
	}
}

// spent compares the ids that were released.
func (c *comparison) spent(k *kept, record *room.Record, ms int64) {
	for _, id := range []string{idA, idB, idC} {
		value, ok := record.Spent[room.Hash(id)]
		v, there := k.spent[id]
		if ok = ok && room.SpentUntil(value) > ms; ok != (there && v.At > ms) {
			c.is("whether "+id+" was released", there, ok)
		} else if ok {
			c.is("until when "+id+" was released", v.At, room.SpentUntil(value))
			c.is("whether "+id+" was inside", *v.Text, value&1)
		}
	}
}

func (c *comparison) uncontended(k *kept, record *room.Record) {
	if len(record.Inside) != 1 || len(record.Queue) != 0 {
		c.is("parties of an uncontended lock", len(record.Inside)+len(record.Queue), 1)
		return
	}
	p := record.Inside[0]
	words := strings.SplitN(*k.h.Text, " ", 12)
	if len(words) != 12 {
		c.is("the holder key", *k.h.Text, "12 words")
		return
	}
	c.is("id", words[0], p.ID)
	c.is("mode", words[1], "x")
	c.is("notify", words[9], orNone(p.Notify))
	c.is("identity", words[10], identityOf(&p))
	c.is("meta and token", words[11], fmt.Sprintf("%s %d", metaOf(&p), p.Token))
	c.is("end", k.h.At, p.Expiry)
	c.is("the record", k.r.Type(), "none")
}

// record compares the parties, the marks and the scalars.
func (c *comparison) record(from *situation, k *kept, record *room.Record, ms int64) {
	if len(k.scalars) != 17 {
		c.is("the scalars", k.scalars, "17 words")
		return
	}
	since := k.scalar(1) - record.Seq // a folded room counts arrivals from zero again
	fields, members := map[string]bool{"#": true}, map[string]int64{"#": lensAnchor}
	n, nx, used, shares, ends, taken := 0, 0, 0, 0, int64(0), []byte("0")
	count := func(p *room.Party) {
		if p.Mode == driver.Shared {
			shares++
		}
		fields[p.ID] = true
	}
	for _, p := range record.Inside {
		count(&p)
		if n++; p.Mode == driver.Shared {
			used += p.Weight
		} else {
			nx++
		}
		for _, number := range p.Places.Numbers() {
			taken = append(taken, strings.Repeat("0", max(number+1-len(taken), 0))...)
			taken[number] = '1'
		}
		members["i"+p.ID] = p.Expiry - lensBand
		ends = max(ends, p.Expiry+p.Delay)
		state := "u"
		if p.Confirmed {
			state = "c"
		}
		c.party(k.r.Hash[p.ID], &p, state, p.Token, since)
	}
	for _, p := range record.Queue {
		count(&p)
		members["t"+p.ID], members["q"+p.ID] = p.Expiry, p.Rank+since+lensQueue
		c.party(k.r.Hash[p.ID], &p, "w", p.Called, since)
	}
	for name, m := range record.Marks {
		members[name] = m.Until
		switch name[0] {
		case '+':
			fields[name] = true
		case '~':
			c.is("why "+name[1:]+" was broken", k.r.Hash[name], m.Reason)
			fields[name] = true
		case '!':
			before, err := strconv.ParseInt(m.Reason, 10, 64)
			if err == nil {
				c.is("what "+name[1:]+" had asked for", k.r.Hash[name], before+since)
			}
			fields[name] = true
		}
	}
	// The scripts forget suspects later than the rule, once no waiter is affected by them.
	harmless := func(name string) bool {
		before, _ := strconv.ParseInt(k.r.Hash[name], 10, 64)
		return name[0] == '@' || name[0] == '!' && !slices.ContainsFunc(record.Queue, func(p room.Party) bool {
			return p.Notify == name[1:] && p.Arrival()+since <= before
		})
	}
	names(c, "a field", k.r.Hash, fields, harmless)
	names(c, "a member", k.scores, members, harmless)
	for name, score := range members {
		if got, ok := k.scores[name]; ok {
			c.is("the score of "+name, got, score)
		}
	}
	head, when := orNone(record.Head), record.When
	if len(record.Queue) == 0 && k.scalars[4] == none { // since the room was folded
		head, when = none, 0
	}
	c.is("closing", max(k.scalar(3), ms), max(record.Closed, ms))
	c.is("head", k.scalars[4], head)
	c.is("when", k.scalar(5), when)
	c.is("insiders", k.scalar(6), n)
	c.is("exclusive ones", k.scalar(7), nx)
	c.is("weight", k.scalar(8), used)
	c.is("sharers", k.scalar(9), shares)
	c.is("taken places", k.scalars[16], string(taken))
	if shares > 0 {
		c.is("limit", k.scalar(2), record.Limit)
	}
	if nx > 0 {
		c.is("owner", k.scalars[10], identityOf(&record.Inside[0]))
		c.is("its token", k.scalar(11), record.Inside[0].Token)
	}
	c.holder(from, k, record, ends, ms)
	suspects, first := 0, none
	for name, m := range k.scores {
		switch {
		case name[0] == '!':
			suspects++
		case name[0] == 'q' && (first == none || m < k.scores["q"+first]):
			first = name[1:]
		case m < 0:
			m += lensBand
		}
		if m < lensAnchor {
			ends = max(ends, m)
			c.is("whether "+name+" ends before the record says", m < k.scalar(14), false)
		}
	}
	c.is("how many are suspect", k.scalar(15), suspects)
	if k.scalar(14) > ms {
		c.is("the first of the queue", k.scalars[4], first)
	}
	if ends = max(ends, k.scalar(0)/1000); k.scalar(13) <= ends+(30*time.Minute).Milliseconds() {
		c.is("how much longer the record lives", k.scalar(13)-ends, "more than half an hour")
	}
	c.is("the end of the record", k.r.At, k.scalar(13))
	c.is("the end of the queue", k.z.At, k.scalar(13))
}

// holder checks the mark in H, which may stay after a release.
func (c *comparison) holder(from *situation, k *kept, record *room.Record, ends, ms int64) {
	hexp := k.scalar(12)
	if len(record.Inside) == 0 {
		ends = record.Closed
		if ends <= ms {
			c.is("whether the holder key of a free room stays", k.h.At > ms+1, false)
			return
		}
	}
	if k.h.Text == nil || *k.h.Text != "*" {
		c.is("the holder key", k.h.Type(), "*")
		return
	}
	c.is("the end of the holder key", k.h.At, hexp+1)
	if before := keptIn(from.keys).h.At; hexp < ends || len(record.Inside) == 0 && hexp > ends || hexp > max(ends, before-1, ms+lensTTL.Milliseconds()+lensDelay.Milliseconds()) {
		c.is("until when others are kept out", hexp, ends)
	}
}

func (c *comparison) party(words string, p *room.Party, state string, token, since int64) {
	w := strings.SplitN(words, " ", 13)
	if len(w) != 13 {
		c.is(p.ID, words, "13 words")
		return
	}
	mode := "x"
	if p.Mode == driver.Shared {
		mode = "s"
	}
	of := func(what, got string, want any) { c.is(what+" of "+p.ID, got, want) }
	of("state", w[0], state)
	of("mode", w[1], mode)
	of("weight", w[3], p.Weight)
	if state == "u" || p.Called > 0 {
		of("arrivals before", w[4], p.Before+since)
	}
	of("delay", w[6], p.Delay)
	// The fields of the request are not read for a lease that was uncontended.
	if state != "c" || w[2]+w[5]+w[7] != "000" {
		of("policy", w[2], uint8(p.Policy))
		of("window", w[5], p.Window)
		of("least token", w[7], p.MinToken)
	}
	if state == "w" {
		of("rank", w[8], p.Rank+since)
	} else {
		of("places", w[8], orNone(string(p.Places)))
	}
	of("token", w[9], token)
	of("address", w[10], orNone(p.Notify))
	of("identity", w[11], identityOf(p))
	of("meta", w[12], metaOf(p))
}

// requestOf returns the request of a party, as far as its fields contain it.
func requestOf(p *room.Party) *driver.Request {
	return &driver.Request{Reenter: p.Reenter, Owner: p.Owner, Visit: p.Visit, Since: time.UnixMilli(p.Since), Labels: p.Labels}
}

func identityOf(p *room.Party) string { return string(appendIdentity(nil, requestOf(p))) }

func metaOf(p *room.Party) string { return string(appendMeta(nil, requestOf(p))) }

// names compares the names of fields or members.
func names[V, W any](c *comparison, what string, got map[string]V, want map[string]W, harmless func(string) bool) {
	for name := range got {
		if _, ok := want[name]; !ok && !harmless(name) {
			c.is(what, name, "none")
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			c.is(what, "none", name)
		}
	}
}

// lives checks the expiry of C, R and Z against its previous value and the time that they must
// live from now: an hour longer than any lease or ticket in the keys, and an hour longer than the
// clock takes to pass their token.
func (c *comparison) lives(from *situation, k *kept, ms int64) {
	before := keptIn(from.keys)
	if k.counter() > 0 && k.c.At != before.c.At {
		c.is("the end of the counter", k.c.At, ms+time.Hour.Milliseconds()+max(0, k.counter()/1000-ms))
	}
	if k.r.Type() == "none" || k.r.At == before.r.At {
		return
	}
	holds := []int64{0}
	for _, d := range []time.Duration{lensTTL, lensTicket, lensWindow, lensDelay, lensKeep, lensForbid, lensTTL + lensDelay, lensWindow + lensDelay, time.Minute} {
		holds = append(holds, d.Milliseconds())
	}
	for _, some := range []*kept{before, k} {
		for _, score := range some.scores {
			switch {
			case score < 0:
				holds = append(holds, score+lensBand-ms)
			case score < lensAnchor:
				holds = append(holds, score-ms)
			}
		}
		at := some.h.At
		if some.h.Text != nil && *some.h.Text == "*" {
			at--
		}
		holds = append(holds, at-ms)
	}
	for _, hold := range holds {
		if hold >= 0 && k.r.At == ms+time.Hour.Milliseconds()+hold+max(0, k.own()/1000-ms) {
			return
		}
	}
	c.is("how long the record lives", k.r.At-ms, "an hour, and as long as something else")
}
