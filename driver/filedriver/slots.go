package filedriver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"sync"
)

// A record's file has two slots of equal size. One holds the record, the other its
// predecessor; the next record overwrites the older. So a record is replaced without a
// new file, which costs ten times as much, and a writer that is killed half-way leaves
// the older record intact.
//
// A slot is a line of text, the key of the room, and its record as package room
// encodes it:
//
//	leasehold3 <number> <length> <checksum>\n…\n
//
// with hexadecimal digits. The record with the greatest number is the record.
const (
	magic      = "leasehold3 "
	headerSize = len(magic) + 16 + 1 + 8 + 1 + 8 + 1
	minSlot    = 2 << 10
	maxSlot    = 32 << 20
)

// castagnoli is made on first use: it takes 0.15 ms, and programs that link this package
// may use another store.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// slots is the open file of a record.
type slots struct {
	file   *os.File
	size   int    // of one slot
	next   int    // the slot to write
	number uint64 // of the record
	raw    []byte // the record
}

// readSlots finds the record in an open file. A contentError describes a damaged file.
func readSlots(f *os.File) (slots, error) {
	info, err := f.Stat()
	if err != nil {
		return slots{}, err
	}
	size := info.Size() / 2
	if !info.Mode().IsRegular() || size < minSlot || size > maxSlot || info.Size()%2 != 0 {
		return slots{}, contentError("it has not the form of a record")
	}
	all := make([]byte, 2*size)
	if _, err := f.ReadAt(all, 0); err != nil && !errors.Is(err, io.EOF) {
		return slots{}, err
	}
	first, second := parseSlot(all[:size]), parseSlot(all[size:])
	s := slots{file: f, size: int(size)}
	current, other := first, second
	if s.next = 1; !first.whole || second.whole && second.number > first.number {
		current, other, s.next = second, first, 0
	}
	if !current.whole || !other.whole && !other.unfinished(current.number) {
		return slots{}, contentError("its checksum is wrong")
	}
	s.number, s.raw = current.number, current.raw
	return s, nil
}

// close closes the file. Its data has already been passed to the system.
func (s *slots) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// contentError is an error about the content of a file.
type contentError string

func (c contentError) Error() string { return string(c) }

// slot is one slot of a file.
type slot struct {
	whole  bool // it holds a record
	blank  bool // it was never written
	number uint64
	raw    []byte
}

// unfinished reports whether the slot was never written, or its writer was killed while
// it wrote the record after number.
func (s slot) unfinished(number uint64) bool { return s.blank || s.number == number+1 }

func parseSlot(b []byte) slot {
	if b[0] == 0 {
		return slot{blank: len(bytes.TrimLeft(b, "\x00")) == 0}
	}
	h := b[len(magic):headerSize]
	if string(b[:len(magic)]) != magic || h[16] != ' ' || h[25] != ' ' || h[34] != '\n' {
		return slot{}
	}
	number, err1 := strconv.ParseUint(string(h[:16]), 16, 64)
	length, err2 := strconv.ParseUint(string(h[17:25]), 16, 32)
	sum, err3 := strconv.ParseUint(string(h[26:34]), 16, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return slot{}
	}
	s := slot{number: number}
	if length > uint64(len(b)-headerSize) {
		return s
	}
	s.raw = b[headerSize : headerSize+int(length)]
	s.whole = uint64(checksum(s.number, s.raw)) == sum
	return s
}

func checksum(number uint64, raw []byte) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], number)
	table := castagnoli()
	return crc32.Update(crc32.Checksum(b[:], table), table, raw)
}

// formatSlot completes a slot, whose record begins behind headerSize bytes for its header. It
// returns the slot without the rest of its space.
func formatSlot(number uint64, slot []byte) []byte {
	raw := slot[headerSize:]
	_ = fmt.Appendf(slot[:0], "%s%016x %08x %08x\n", magic, number, len(raw), checksum(number, raw))
	return append(slot, '\n')
}

// write replaces the record by that of an unformatted slot. ok is false if it does not fit.
func (s *slots) write(slot []byte) (ok bool, err error) {
	b := formatSlot(s.number+1, slot)
	if len(b) > s.size {
		return false, nil
	}
	_, err = s.file.WriteAt(b, int64(s.next*s.size))
	return true, err
}

// newSlots returns the content of a new file for an unformatted slot, with room to grow.
func newSlots(slot []byte) []byte {
	size := minSlot
	for size < len(slot)+(len(slot)-headerSize)/2 {
		size *= 2
	}
	b := make([]byte, 2*size)
	copy(b, formatSlot(1, slot))
	return b
}
