package room

// Spent remembers ids that have been released, for requests with SingleUseID: of each its
// hash ([Hash]), and twice the time until when it counts, and one if it was in the
// room. There may be a million of them in a minute. So a store that reads and
// writes the record with every call keeps them elsewhere: a call needs to find in
// the record what is remembered of its own id, and changes nothing else.
type Spent map[uint64]int64

// Hash is what is remembered of an id: FNV-1a. That of hash/fnv takes memory.
func Hash(id string) uint64 {
	hash := uint64(14695981039346656037)
	for i := range len(id) {
		hash = (hash ^ uint64(id[i])) * 1099511628211
	}
	return hash
}

// SpentUntil is until when an id counts of which so much is remembered.
func SpentUntil(value int64) int64 { return value >> 1 }

// released reports whether an id is remembered, and was in the room.
func (s Spent) released(id string, ms int64) (released, spent bool) {
	value := s[Hash(id)]
	spent = SpentUntil(value) > ms
	return spent && value&1 == 1, spent
}

// remember keeps an id until a time.
func (s *Spent) remember(id string, until int64, released bool) {
	value := until << 1
	if released {
		value |= 1
	}
	if *s == nil {
		*s = make(Spent)
	}
	(*s)[Hash(id)] = value
}

// looks is how many ids a call looks at that have nothing to do with it. Each
// call remembers one at most, so an equilibrium comes about in which one in so
// many is out of date.
const looks = 4

// purge forgets some of those whose time is over: a map is ranged over from a
// place that is drawn by lot.
func (s Spent) purge(ms int64) {
	left := looks
	for hash, value := range s {
		if left--; left < 0 {
			return
		}
		if SpentUntil(value) <= ms {
			delete(s, hash)
		}
	}
}

// until is when the last one is forgotten.
func (s Spent) until() (last int64) {
	for _, value := range s {
		last = max(last, SpentUntil(value))
	}
	return last
}
