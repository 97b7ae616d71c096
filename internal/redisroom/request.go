package redisroom

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/room"
)

// none represents an empty word.
const none = "-"

// unaddressable are characters that an address cannot have: it is a word, and a JSON
// string without escapes.
const unaddressable = ` "\`

func checkNotify(address string) error {
	if address == none || strings.ContainsAny(address, unaddressable) {
		return check.Errorf("notify address %.80q is not one of this store", address)
	}
	return check.Text("notify address", address, 0, len(address))
}

// checkRequest refuses requests that the scripts could not parse. The library has checked most
// of it, but other callers may not have.
func checkRequest(req *driver.Request) error {
	if err := checkRef(&driver.Ref{Key: req.Key, ID: req.ID, HintAddress: req.HintAddress, Visit: req.Visit}); err != nil {
		return err
	}
	if err := check.Text("owner", req.Owner, 0, check.MaxOwner); err != nil {
		return err
	}
	switch {
	case req.TTL.Milliseconds() < 1:
		return check.Errorf("time to live %v is below 1ms", req.TTL)
	case req.Mode > driver.Shared, req.Policy > driver.ReadersFirst:
		return check.Errorf("unknown mode %d or policy %d", req.Mode, req.Policy)
	case req.TicketTTL < 0, req.ConfirmWindow < 0, req.LockDelay < 0, req.MinToken < 0:
		return check.Errorf("negative number in the request")
	}
	return room.CheckPlaces(*req)
}

func checkRef(ref *driver.Ref) error {
	return cmp.Or(check.Key(ref.Key), check.ID(ref.ID), check.Visit(ref.Visit, check.MaxVisit), checkNotify(ref.HintAddress))
}

// command builds an EVALSHA. All its words are parts of one string.
type command struct {
	text  []byte
	ends  []int    // of the words in text
	words []string // once it is built
	// kept is set if a pipeline may still read the words.
	kept bool
}

// commands reuses the memory of commands.
var commands = sync.Pool{New: func() any { return new(command) }}

func newCommand() *command {
	c := commands.Get().(*command)
	c.text, c.ends, c.kept = c.text[:0], c.ends[:0], false
	return c
}

func (c *command) end() { c.ends = append(c.ends, len(c.text)) }

// room adds the four keys of a lock, and returns the first.
func (s *Store) room(c *command, key string) []byte {
	h := c.holder(s.prefix, key)
	c.text = appendSide(c.text, h, recordKey)
	c.end()
	c.text = appendSide(c.text, h, sortedKey)
	c.end()
	c.word(s.counter(h))
	return h
}

// holder adds the holder key of a lock, and returns it.
func (c *command) holder(prefix, key string) []byte {
	start := len(c.text)
	c.text = append(append(c.text, prefix...), key...)
	c.end()
	return c.text[start:]
}

// spent adds the key of a released id.
func (c *command) spent(h []byte, id string) {
	c.text = appendSpent(c.text, h, id)
	c.end()
}

// id adds an id as the scripts compare it.
func (c *command) id(id string) {
	c.text = append(append(c.text, id...), ' ')
	c.end()
}

func (c *command) word(s string) {
	c.text = append(c.text, s...)
	c.end()
}

func (c *command) int(n int64) {
	c.text = strconv.AppendInt(c.text, n, 10)
	c.end()
}

// build makes the words of EVALSHA for a script over so many keys, and returns the
// command, which is to be freed.
func (c *command) build(f *form, keys int) *command {
	words := append(slices.Grow(c.words[:0], 3+len(c.ends)), evalsha, f.sha, strconv.Itoa(keys))
	text, start := string(c.text), 0
	for _, end := range c.ends {
		words = append(words, text[start:end])
		start = end
	}
	c.words = words
	return c
}

// free returns the memory of a command to the pool. The caller must not use it afterwards.
func (c *command) free() {
	if c.kept {
		c.words = nil
	}
	clear(c.words) // they would keep the text alive
	commands.Put(c)
}

// take frees the command but for its words, and returns them.
func (c *command) take() []string {
	words := c.words
	c.kept = true
	c.free()
	return words
}

// Values of how, the argument of lua/acquire in addition to the request.
const (
	plainly  = ""
	general  = "general"
	raising  = "raise"
	resizing = "resize"
	lowering = "downgrade"
)

// acquireCommand encodes a request for lua/acquire. The script seeds the counter if it is
// not above least.
func (s *Store) acquireCommand(f *form, req *driver.Request, least int64, how string) *command {
	c := newCommand()
	h := s.room(c, req.Key)
	keys := roomKeys
	if req.SingleUseID {
		c.spent(h, req.ID)
		keys++
	}
	if req.Guard {
		c.word(s.prefix + markKey)
		c.word(s.prefix + seenKey)
		keys += 2
	}

	c.text = append(append(c.text, req.ID...), ' ')
	c.text = append(appendTerms(c.text, req), ' ')
	c.text = appendMeta(c.text, req)
	c.end()
	c.int(req.TTL.Milliseconds())
	c.int(least)
	switch {
	case how != plainly:
	case req.Resize:
		how = resizing
	case req.Downgrade:
		how = lowering
	case !fitsUncontended(req):
		how = general
	}
	if how != plainly {
		c.word(how)
	}
	return c.build(f, keys)
}

// fitsUncontended reports whether the uncontended form of a holder key can hold the request.
func fitsUncontended(req *driver.Request) bool {
	return req.Mode == driver.Exclusive && req.LockDelay == 0 && req.MinToken == 0
}

// appendTerms appends the settings of a request, except its id, meta and TTL.
func appendTerms(b []byte, req *driver.Request) []byte {
	mode, weight, limit := "x ", 1, 0
	if req.Mode == driver.Shared {
		mode, weight, limit = "s ", max(req.Weight, 1), req.Limit
	}
	b = append(b, mode...)
	for _, n := range [...]int64{
		int64(req.Policy), int64(weight), int64(limit), req.TicketTTL.Milliseconds(),
		req.ConfirmWindow.Milliseconds(), req.LockDelay.Milliseconds(), req.MinToken,
	} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	b = append(append(b, orNone(req.HintAddress)...), ' ')
	return appendIdentity(b, req)
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// appendIdentity appends the identity of a re-entrant owner as one word without quotes,
// or none.
func appendIdentity(b []byte, req *driver.Request) []byte {
	if !req.Reenter {
		return append(b, none...)
	}
	return append(append(b, '='), url.QueryEscape(req.Owner)...)
}

// appendMeta appends, as JSON, the visit of a holder or waiter, if any, and the data for
// inspection. The scripts find the visit at the beginning.
func appendMeta(b []byte, req *driver.Request) []byte {
	b = append(b, '{')
	if req.Visit != "" {
		b = append(append(append(b, `"v":"`...), req.Visit...), `",`...)
	}
	b = appendString(append(b, `"o":`...), req.Owner)
	b = strconv.AppendInt(append(b, `,"s":`...), req.Since.UnixMilli(), 10)
	if len(req.Labels) > 0 {
		labels, _ := json.Marshal(req.Labels) // strings always encode
		b = append(append(b, `,"l":`...), labels...)
	}
	return append(b, '}')
}

// appendString appends s as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s)
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// releaseCommand encodes a release for lua/release.
func (s *Store) releaseCommand(f *form, ref *driver.Ref) *command {
	c := newCommand()
	h := s.room(c, ref.Key)
	keep, forbid, spent := max(ref.KeepClosed.Milliseconds(), 0), max(ref.RejectIDFor.Milliseconds(), 0), spentLife(ref)
	keys := roomKeys
	if spent > 0 {
		c.spent(h, ref.ID)
		forbid, keys = 0, keys+1
	}
	c.id(ref.ID)
	more := keep > 0 || forbid > 0 || ref.Visit != ""
	if more || spent > 0 {
		c.int(spent)
	}
	if more {
		c.text = append(strconv.AppendInt(c.text, keep, 10), ' ')
		c.text = append(strconv.AppendInt(c.text, forbid, 10), ' ')
		c.word(ref.Visit)
	}
	return c.build(f, keys)
}

// spentLife returns how many ms to remember a released id for requests with SingleUseID.
func spentLife(ref *driver.Ref) int64 {
	if !ref.SingleUseID {
		return 0
	}
	return max(ref.RejectIDFor.Milliseconds(), 0)
}

// renewCommand encodes a renewal for its script.
func (s *Store) renewCommand(g *renewal, refs []driver.Ref) *command {
	if g.script == renewUncontended {
		return renewUncontendedCommand(s.form(renewUncontended), s.prefix, refs, g.which)
	}
	return s.renewRoomsCommand(s.form(renewScript), refs, g.which)
}

// renewRoomsCommand encodes the renewal of refs for lua/renew.
func (s *Store) renewRoomsCommand(f *form, refs []driver.Ref, which []int) *command {
	c := newCommand()
	for _, i := range which {
		s.room(c, refs[i].Key)
	}
	for _, i := range which {
		ref := &refs[i]
		if ref.Token > 0 {
			// No holder key begins so: the free path passes it by.
			how := byte('+')
			if ref.Level {
				how = '='
			}
			c.text = append(strconv.AppendInt(append(c.text, how), ref.Token, 10), ' ')
		}
		c.id(ref.ID)
		c.int(ref.TTL.Milliseconds())
		c.int(max(ref.TicketTTL.Milliseconds(), 0))
		c.text = append(c.text, orNone(ref.HintAddress)...)
		if ref.Visit != "" {
			c.text = append(append(c.text, ' '), ref.Visit...)
		}
		c.end()
	}
	return c.build(f, roomKeys*len(which))
}

// renewUncontendedCommand encodes the renewal of refs with one TTL for lua/renew_uncontended.lua.
func renewUncontendedCommand(f *form, prefix string, refs []driver.Ref, which []int) *command {
	c := newCommand()
	for _, i := range which {
		c.holder(prefix, refs[i].Key)
	}
	c.int(refs[which[0]].TTL.Milliseconds())
	for _, i := range which {
		c.id(refs[i].ID)
	}
	return c.build(f, len(which))
}

// roomCommand encodes a call on one lock with plain arguments.
func (s *Store) roomCommand(f *form, key string, args ...string) *command {
	c := newCommand()
	s.room(c, key)
	for _, arg := range args {
		c.word(arg)
	}
	return c.build(f, roomKeys)
}
