package room

// Spent holds ids that have been released, for requests with SingleUseID: the hash of
// each id ([Hash]), and twice the time until which it counts, plus one if it was a holder
// or waiter. There may be a million of them in a minute. A store that reads and writes
// the record with every call therefore keeps them elsewhere: a call only needs, and
// changes, the entry of its own id.
type Spent map[uint64]int64

// Hash returns the FNV-1a hash of an id. The implementation in hash/fnv allocates memory.
func Hash(id string) uint64 {
	hash := uint64(14695981039346656037)
	for i := range len(id) {
		hash = (hash ^ uint64(id[i])) * 1099511628211
	}
	return hash
}

// SpentUntil returns the time until which a remembered id counts.
func SpentUntil(value int64) int64 { return value >> 1 }

// released reports whether an id is remembered, and was a holder or waiter.
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

// looks is how many other ids a call examines. Each call remembers at most one, so in
// equilibrium one in so many is expired.
const looks = 4

// purge forgets some expired ids. The order of a map's range is random.
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

// until returns when the last id expires.
func (s Spent) until() (last int64) {
	for _, value := range s {
		last = max(last, SpentUntil(value))
	}
	return last
}
