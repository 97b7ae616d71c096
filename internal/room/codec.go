package room

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/leasehold-go/leasehold/driver"
)

// The encoding of a record, which stores keep in files and tables:
//
//	1 byte    the version
//	8 bytes   when the record may be removed, in ms, big-endian
//	8 bytes   the last token, big-endian
//	…         the fields in order: integers as varints, strings and lists after their length
//
// The time and the token have fixed positions, so that a table can sort and delete records, and
// put a token of its own in, without decoding them. The token of a holder is written as 0 if
// it is the last one. A call reads and writes the whole room, its queue
// included, so the encoding costs every waiter time: JSON takes several
// times as long.
//
// Each type is described once, for both directions. Add a new field at the end of its
// type, and raise version; a reader then knows which fields an older version lacks.

// version is the version that is written, and the only one that is read so far.
const version = 1

// headSize is the size of the data before the fields, and endSize up to the time.
const (
	endSize  = 1 + 8
	headSize = endSize + 8
)

// Never is the end of a record that is never forgotten.
const Never = 1<<63 - 1

// errDamaged is the error of everything that Append has not written.
var errDamaged = errors.New("it is not a record of a lock, or a part of one")

// Append appends the encoding of a record to b. end, in ms, is when the record
// may be forgotten. Equal records have equal encodings.
func Append(b []byte, r *Record, end int64) []byte {
	c := codec{b: slices.Grow(b, 256+160*(len(r.Inside)+len(r.Queue)))}
	c.b = append(c.b, version)
	c.b = binary.BigEndian.AppendUint64(c.b, uint64(max(end, 0)))     //nolint:gosec // not negative
	c.b = binary.BigEndian.AppendUint64(c.b, uint64(max(r.Token, 0))) //nolint:gosec // not negative
	c.token = r.Token
	c.record(r)
	return c.b
}

// Decode reads the output of Append. Other data, such as a truncated record, is an error;
// Decode never panics, and takes memory in proportion to the length of b.
func Decode(b []byte) (Record, error) {
	if _, err := End(b); err != nil {
		return Record{}, err
	}
	if len(b) < headSize {
		return Record{}, errDamaged
	}
	fields := b[headSize:]
	r := Record{Token: Token(b)}
	c := codec{reads: true, b: fields, text: string(fields), token: r.Token}
	c.record(&r)
	if c.bad || len(c.b) > 0 || !r.sound() {
		return Record{}, errDamaged
	}
	return r, nil
}

// End returns when an encoded record may be forgotten, in ms, without reading
// the rest.
func End(b []byte) (ms int64, err error) {
	if len(b) > 0 && b[0] != version {
		return 0, fmt.Errorf("it has version %d, and this program reads version %d only: let all programs use one version", b[0], version)
	}
	if len(b) < endSize {
		return 0, errDamaged
	}
	end := binary.BigEndian.Uint64(b[1:])
	if end > Never {
		return 0, errDamaged
	}
	return int64(end), nil
}

// Token returns the last token of an encoded record.
func Token(b []byte) int64 {
	return int64(binary.BigEndian.Uint64(b[endSize:headSize]) & math.MaxInt64) //nolint:gosec // not negative
}

// End returns when a record may be removed, in ms: when its contents have expired, and the
// clock has been past its token for memory ms. After a token was removed the clock alone
// determines the next one, so memory is how far the clock may be stepped back.
func (r *Record) End(memory int64) int64 {
	if r.Token <= 0 {
		return r.Until()
	}
	return max(r.Until(), r.Token/1000+1+memory)
}

// sound reports whether the rule can work on a record that was read.
func (r *Record) sound() bool {
	_, nameless := r.Marks[""]
	unknown := func(p Party) bool { return p.Mode > driver.Shared || p.Policy > driver.ReadersFirst }
	return !nameless && !slices.ContainsFunc(r.Inside, unknown) && !slices.ContainsFunc(r.Queue, unknown)
}

// codec writes the values that it is given, or reads them. A reader returns zeros after
// the first error.
type codec struct {
	reads bool
	b     []byte // written, or left to read
	text  string // the same as b, when reading; strings are parts of it
	token int64  // the last of the record
	bad   bool
}

func (c *codec) record(r *Record) {
	c.int(&r.Seq)
	codeInt(c, &r.Limit)
	c.int(&r.Closed)
	c.str(&r.Head)
	c.int(&r.When)
	c.parties(&r.Inside)
	c.token = 0 // waiters have no token
	c.parties(&r.Queue)
	codeMap(c, &r.Marks, (*codec).mark)
	c.spent(&r.Spent)
}

func (c *codec) party(p *Party) {
	c.str(&p.ID)
	c.str(&p.Owner)
	c.bool(&p.Reenter)
	codeMap(c, &p.Labels, (*codec).str)
	c.int(&p.Since)
	codeInt(c, &p.Mode)
	codeInt(c, &p.Policy)
	codeInt(c, &p.Weight)
	c.int(&p.Before) // a TTL in records of earlier versions, which then has no effect
	c.int(&p.Window)
	c.int(&p.Delay)
	c.int(&p.MinToken)
	c.str(&p.Notify)
	c.int(&p.Rank)
	c.int(&p.Expiry)
	c.tokenOf(p)
	c.int(&p.Called)
	c.bool(&p.Confirmed)
	c.str(&p.Visit)
	places := string(p.Places)
	c.str(&places)
	p.Places = driver.Places(places)
}

func (c *codec) tokenOf(p *Party) {
	token := p.Token
	if token == c.token {
		token = 0
	}
	c.int(&token)
	if c.reads {
		p.Token = cmp.Or(token, c.token)
	}
}

func (c *codec) mark(m *Mark) {
	c.int(&m.Until)
	c.str(&m.Reason)
}

func (c *codec) spent(s *Spent) {
	n := len(*s)
	c.len(&n, minSpent)
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
			*s = make(Spent, n)
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

func (c *codec) parties(list *[]Party) {
	n := len(*list)
	c.len(&n, minParty)
	if len(*list) == 0 && n > 0 {
		*list = make([]Party, n)
	}
	for i := range *list {
		c.party(&(*list)[i])
	}
}

// codeMap codes a map in the order of its keys, so that equal records have equal
// encodings.
func codeMap[V any](c *codec, m *map[string]V, code func(*codec, *V)) {
	n := len(*m)
	c.len(&n, minEntry)
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

// The least that one of a list takes, so that a length that cannot be right costs
// no memory.
const (
	minParty = 19 // fields of at least a byte
	minEntry = 2
	minSpent = 9
)

// len codes a length, of elements that take at least so many bytes each.
func (c *codec) len(v *int, least int) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, uint64(*v))
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 || c.bad || n > uint64((len(c.b)-size)/least) {
		c.bad, *v = true, 0
		return
	}
	c.skip(size)
	*v = int(n)
}

func (c *codec) str(v *string) {
	n := len(*v)
	c.len(&n, 1)
	if !c.reads {
		c.b = append(c.b, *v...)
		return
	}
	*v = c.text[:n]
	c.skip(n)
}

func (c *codec) skip(n int) { c.b, c.text = c.b[n:], c.text[n:] }
