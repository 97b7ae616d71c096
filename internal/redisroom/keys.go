package redisroom

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"sync"

	"github.com/leasehold-go/leasehold/internal/room"
)

// The keys of a room are
//
//	H = prefix + key          the holder key, which other programs may use
//	R = H + "\x1fr" + filler  the record, or a token above the counter
//	Z = H + "\x1fz" + filler  the sorted set
//	T = H + "\x1ft" + hash + filler  an id that was released
//
// and the rooms of a store share
//
//	C = prefix + "\x1fc"  the counter of the tokens; on a cluster one per slot, with a filler
//	M = prefix + "\x1fm"  the mark
//	G = prefix + "\x1fg"  which is there while M need not be read
//
// No key of a lock contains a control character. So a side key belongs to one H only, is
// no H itself, and matches every pattern that H matches.
//
// All keys of a lock lie in one cluster slot. If H has a hash tag, the suffix does not change it. If H has
// none, a suffix without braces adds none, and the filler is chosen so that the whole has
// the checksum of H.
const (
	separator  = "\x1f"
	recordKey  = separator + "r"
	sortedKey  = separator + "z"
	spentKey   = separator + "t"
	counterKey = separator + "c"
	markKey    = separator + "m"
	seenKey    = separator + "g"
	roomKeys   = 4
	fillerSize = 3
)

// Slots is the number of hash slots of a cluster.
const Slots = 16384

// appendSide appends to b the side key of h with the given suffix.
func appendSide[S string | []byte](b, h []byte, suffix S) []byte {
	b = append(b, h...)
	b = append(b, suffix...)
	if len(hashTag(h)) != len(h) {
		return b
	}
	crc := checksum(0, h)
	return appendFiller(b, checksum(crc, suffix), crc)
}

// appendFiller appends to b, whose last part has the checksum crc, what gives this part the
// slot of the checksum want.
func appendFiller(b []byte, crc, want uint16) []byte {
	// The checksum is linear: that of a filler after something is that of
	// zeros after it, combined with that of the filler alone.
	filler := fillers()[(checksum(crc, "\x00\x00\x00")^want)%Slots]
	return append(b, filler[:]...)
}

// slotCounter returns the counter of a cluster's slot, the one of h. In its own slot the counter
// needs no filler: a client that uses no other slot never learns that there is a cluster.
func slotCounter(prefix, h string) string {
	counter := prefix + counterKey
	if Slot(counter) == Slot(h) {
		return counter
	}
	return string(appendFiller([]byte(counter), checksum(0, counter), checksum(0, hashTag([]byte(h)))))
}

// appendSpent appends to b the key of a released id. It has 64 bits of the id's hash: a
// server keeps such a key for every release of a minute, and each byte costs memory there
// and time in two scripts. With a million ids remembered, two ids of one lock are
// confused once in 10^13 times.
func appendSpent(b, h []byte, id string) []byte {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], room.Hash(id))
	var suffix [len(spentKey) + 11]byte
	base64.RawURLEncoding.Encode(suffix[copy(suffix[:], spentKey):], sum[:])
	return appendSide(b, h, suffix[:])
}

// hashTag returns the part of a key that decides its slot: between the first brace and
// the first closing one after it, or else the whole key.
func hashTag(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	length := bytes.IndexByte(key[open+1:], '}')
	if length <= 0 {
		return key
	}
	return key[open+1 : open+1+length]
}

// Slot returns the cluster slot of a key.
func Slot(key string) int { return int(checksum(0, hashTag([]byte(key))) % Slots) }

// checksum continues a CRC-16/XMODEM, as used by Redis Cluster, over s.
func checksum[S string | []byte](crc uint16, s S) uint16 {
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}()

// fillers returns, for every slot, three characters whose checksum falls into it. A test
// checks that all slots are reached.
var fillers = sync.OnceValue(func() *[Slots][fillerSize]byte {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
	table := new([Slots][fillerSize]byte)
	for _, a := range []byte(letters) {
		for _, b := range []byte(letters) {
			for _, c := range []byte(letters) {
				filler := [fillerSize]byte{a, b, c}
				table[checksum(0, filler[:])%Slots] = filler
			}
		}
	}
	return table
})
