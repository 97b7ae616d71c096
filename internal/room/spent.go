package room

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
)

// Spent remembers ids that have been released, for requests with Once. There
// may be thousands of them in a minute, and every call carries the record
// along, so an id takes 16 bytes: half of a hash, and until when it counts. They
// stand in the order of their release.
type Spent []byte

// spentSize is what an id takes: its hash, whose lowest bit tells whether it
// was in the room, and its time.
const spentSize = 16

func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64() &^ 1
}

// find returns where an id stands, -1 if it is not remembered.
func (s Spent) find(id string) int {
	want := hashOf(id)
	for at := 0; at+spentSize <= len(s); at += spentSize {
		if binary.LittleEndian.Uint64(s[at:])&^1 == want {
			return at
		}
	}
	return -1
}

func (s Spent) until(at int) int64 { return int64(binary.LittleEndian.Uint64(s[at+8:])) } //nolint:gosec // it was one

// released reports whether an id is remembered, and was in the room.
func (s Spent) released(id string, ms int64) (released, spent bool) {
	at := s.find(id)
	if at < 0 || s.until(at) <= ms {
		return false, false
	}
	return s[at]&1 == 1, true
}

// remember keeps an id until a time.
func (s *Spent) remember(id string, until, ms int64, released bool) {
	at := s.find(id)
	if at < 0 {
		if n := len(*s) / spentSize; n >= 64 && n&(n-1) == 0 {
			s.compact(ms) // what is out of order, too
		}
		at = len(*s)
		*s = append(*s, make([]byte, spentSize)...)
	}
	hash := hashOf(id)
	if released {
		hash |= 1
	}
	binary.LittleEndian.PutUint64((*s)[at:], hash)
	binary.LittleEndian.PutUint64((*s)[at+8:], uint64(until)) //nolint:gosec // times are positive
}

// purge forgets the first ones whose time is over. Mostly that is all of them.
func (s *Spent) purge(ms int64) {
	at := 0
	for at+spentSize <= len(*s) && s.until(at) <= ms {
		at += spentSize
	}
	if *s = (*s)[at:]; len(*s) == 0 {
		*s = nil
	}
}

// compact forgets all whose time is over.
func (s *Spent) compact(ms int64) {
	kept := (*s)[:0]
	for at := 0; at+spentSize <= len(*s); at += spentSize {
		if s.until(at) > ms {
			kept = append(kept, (*s)[at:at+spentSize]...)
		}
	}
	*s = kept
}

// Times yields until when each id is remembered.
func (s Spent) Times() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for at := 0; at+spentSize <= len(s); at += spentSize {
			if !yield(s.until(at)) {
				return
			}
		}
	}
}
