package filedriver

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/leasehold-go/leasehold/internal/room"
)

// The encoding of a record: its fields in order, integers as varints, strings
// and lists after their length. A call reads and writes the whole room, its
// queue included, so this is on the way of every waiter: JSON takes several times
// as long.
//
// Each type is told once, for both directions. Whoever adds a field to package
// room adds it here, at the end, and raises the number in magic.

// codec writes the values it is given, or reads them. A reader reads zeros
// after the first thing that is wrong.
type codec struct {
	reads bool
	b     []byte // written, or left to read
	text  string // the same as b, when reading; strings are parts of it
	bad   bool
}

func encode(key string, r *room.Record) []byte {
	c := codec{b: make([]byte, 0, 256+160*(len(r.Inside)+len(r.Queue)))}
	c.record(&key, r)
	return c.b
}

// decode reports whether b is the encoding of a record.
func decode(b []byte) (key string, r room.Record, ok bool) {
	c := codec{reads: true, b: b, text: string(b)}
	c.record(&key, &r)
	return key, r, !c.bad && len(c.b) == 0
}

func (c *codec) record(key *string, r *room.Record) {
	c.str(key)
	c.int(&r.Token)
	c.int(&r.Seq)
	codeInt(c, &r.Limit)
	c.int(&r.Closed)
	c.str(&r.Head)
	c.int(&r.When)
	c.parties(&r.Inside)
	c.parties(&r.Queue)
	codeMap(c, &r.Marks, (*codec).mark)
	c.spent(&r.Spent)
}

func (c *codec) party(p *room.Party) {
	c.str(&p.ID)
	c.str(&p.Owner)
	c.bool(&p.Reenter)
	codeMap(c, &p.Labels, (*codec).str)
	c.int(&p.Since)
	codeInt(c, &p.Mode)
	codeInt(c, &p.Policy)
	codeInt(c, &p.Weight)
	c.int(&p.TTL)
	c.int(&p.Window)
	c.int(&p.Delay)
	c.int(&p.MinToken)
	c.str(&p.Notify)
	c.int(&p.Rank)
	c.int(&p.Expiry)
	c.int(&p.Token)
	c.int(&p.Called)
	c.bool(&p.Confirmed)
}

func (c *codec) mark(m *room.Mark) {
	c.int(&m.Until)
	c.str(&m.Reason)
}

func (c *codec) spent(s *room.Spent) {
	n := len(*s)
	c.len(&n)
	if len(*s) > 0 {
		for _, hash := range slices.Sorted(maps.Keys(*s)) {
			c.b = binary.LittleEndian.AppendUint64(c.b, hash)
			c.b = binary.AppendVarint(c.b, (*s)[hash])
		}
		return
	}
	for range n {
		if len(c.b) < 8 {
			c.bad = true
			return
		}
		hash, value := binary.LittleEndian.Uint64(c.b), int64(0)
		c.skip(8)
		c.int(&value)
		if *s == nil {
			*s = make(room.Spent, n)
		}
		(*s)[hash] = value
	}
}

func codeInt[T ~int | ~uint8](c *codec, v *T) {
	n := int64(*v)
	c.int(&n)
	*v = T(n) //nolint:gosec // it was such a value when it was written
}

func (c *codec) bool(v *bool) {
	var n int64
	if *v {
		n = 1
	}
	c.int(&n)
	*v = n != 0
}

func (c *codec) parties(list *[]room.Party) {
	n := len(*list)
	c.len(&n)
	if len(*list) == 0 && n > 0 {
		*list = make([]room.Party, n)
	}
	for i := range *list {
		c.party(&(*list)[i])
	}
}

// codeMap codes a map in the order of its keys, so that equal records have
// equal encodings.
func codeMap[V any](c *codec, m *map[string]V, code func(*codec, *V)) {
	n := len(*m)
	c.len(&n)
	if len(*m) > 0 {
		for _, key := range slices.Sorted(maps.Keys(*m)) {
			value := (*m)[key]
			c.str(&key)
			code(c, &value)
		}
		return
	}
	for range n {
		var key string
		var value V
		c.str(&key)
		code(c, &value)
		if *m == nil {
			*m = make(map[string]V, n)
		}
		(*m)[key] = value
	}
}

func (c *codec) int(v *int64) {
	if !c.reads {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 || c.bad {
		c.bad, *v = true, 0
		return
	}
	c.skip(size)
	*v = n
}

// len codes the length of something that takes at least a byte apiece.
func (c *codec) len(v *int) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, uint64(*v))
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 || c.bad || n > uint64(len(c.b)-size) {
		c.bad, *v = true, 0
		return
	}
	c.skip(size)
	*v = int(n)
}

func (c *codec) str(v *string) {
	n := len(*v)
	c.len(&n)
	if !c.reads {
		c.b = append(c.b, *v...)
		return
	}
	*v = c.text[:n]
	c.skip(n)
}

func (c *codec) skip(n int) { c.b, c.text = c.b[n:], c.text[n:] }
