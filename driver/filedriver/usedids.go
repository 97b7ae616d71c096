package filedriver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Ids that are rejected after their release are in the record of their lock while they are
// few. Many ids have a separate file: a call needs only one of them, and in the record every
// call would read and write all. With 2 000 ids a pair of calls would take 4 ms instead of
// 0.1 ms.
//
// The file is a hash table. It has pages of cells, a power of two of pages; the hash of an
// id selects its page. A cell is the hash and the value of [room.Spent], and is free after
// that time. A cell is written by one write, so that a killed writer leaves the old cell or
// the new one. If a page is full, a new table replaces the file.
const (
	idsSuffix   = ".ids"
	cellSize    = 16
	pageCells   = 64
	pageSize    = pageCells * cellSize
	maxIDs      = 64 << 20 // bytes of a file
	maxInRecord = 16       // ids in a record
)

// usedIDs is the part of a lock's table that a call on one id needs. file is nil without a
// table.
type usedIDs struct {
	sh     *shard
	name   string // of the file
	hash   uint64 // of the id
	stored int64  // its value in the table
	file   *os.File
	size   int64
	page   [pageSize]byte // the id's
}

// loadUsedIDs adds the state of an id to a record. The caller has locked the shard, and
// closes the table.
func (sh *shard) loadUsedIDs(roomName, id string, r *room.Record) (*usedIDs, error) {
	t := &usedIDs{sh: sh, name: strings.TrimSuffix(roomName, suffix) + idsSuffix, hash: room.Hash(id)}
	var err error
	t.file, err = sh.tree.openFile(t.name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, unavailable("read ids", err)
	}
	info, err := t.file.Stat()
	if err == nil {
		if t.size = info.Size(); !info.Mode().IsRegular() || !isIDTableSize(t.size) {
			return t, damaged(sh.tree.path(t.name), "it has not the form of a table of ids")
		}
		_, err = t.file.ReadAt(t.page[:], pageOf(t.hash, t.size))
	}
	if err != nil {
		return t, unavailable("read ids", err)
	}
	if at, ok := t.find(); ok {
		_, t.stored = cellAt(t.page[at:])
		r.Spent = room.Spent{t.hash: max(t.stored, r.Spent[t.hash])}
	}
	return t, nil
}

// find returns the offset of the id in its page.
func (t *usedIDs) find() (at int, ok bool) {
	return findCell(t.page[:], func(hash uint64, value int64) bool { return hash == t.hash && value > 0 })
}

func (t *usedIDs) close() {
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// store moves the ids of a record to the table. A few ids without a table stay in the
// record.
func (t *usedIDs) store(r *room.Record, ms int64) error {
	if t.file == nil {
		if len(r.Spent) > maxInRecord {
			maps.DeleteFunc(r.Spent, func(_ uint64, value int64) bool { return room.SpentUntil(value) <= ms })
		}
		if len(r.Spent) <= maxInRecord {
			return nil
		}
	}
	spent := r.Spent
	r.Spent = nil
	value := spent[t.hash]
	if len(spent) == 0 || len(spent) == 1 && value == t.stored {
		return nil
	}
	if at, ok := t.freeCell(ms); ok && len(spent) == 1 {
		_, err := t.file.WriteAt(newCell(t.hash, value), pageOf(t.hash, t.size)+int64(at))
		return written(err)
	}
	return t.rebuild(spent, ms)
}

// freeCell returns the offset of the id in its page, or of a cell that is free.
func (t *usedIDs) freeCell(ms int64) (at int, ok bool) {
	if t.file == nil {
		return 0, false
	}
	if at, ok := t.find(); ok {
		return at, true
	}
	return findCell(t.page[:], func(_ uint64, value int64) bool { return room.SpentUntil(value) <= ms })
}

// rebuild replaces a full table by a new one: with the new ids, without expired ids, and
// at most half full.
func (t *usedIDs) rebuild(more room.Spent, ms int64) error {
	var cells []byte
	for hash, value := range more {
		cells = append(cells, newCell(hash, value)...)
	}
	if t.file != nil {
		all := make([]byte, t.size)
		if _, err := t.file.ReadAt(all, 0); err != nil && !errors.Is(err, io.EOF) {
			return unavailable("read ids", err)
		}
		t.close() // Windows does not replace an open file
		for at := 0; at < len(all); at += cellSize {
			hash, value := cellAt(all[at:])
			if _, again := more[hash]; !again && room.SpentUntil(value) > ms {
				cells = append(cells, all[at:at+cellSize]...)
			}
		}
	}
	for size := pageSize; size <= maxIDs; size *= 2 {
		if table, ok := newIDTable(size, cells); ok {
			return written(t.sh.put(t.name, table))
		}
	}
	return fmt.Errorf("the ids that a room remembers cannot grow beyond %d bytes: %w", maxIDs, driver.ErrUnavailable)
}

// newIDTable makes a table of cells. ok is false if it would be more than half full.
func newIDTable(size int, cells []byte) (table []byte, ok bool) {
	if len(cells) > size/2 {
		return nil, false
	}
	table = make([]byte, size)
	for len(cells) > 0 {
		hash, _ := cellAt(cells)
		start := pageOf(hash, int64(size))
		page := table[start : start+pageSize]
		at, ok := findCell(page, func(_ uint64, value int64) bool { return value == 0 })
		if !ok {
			return nil, false
		}
		copy(page[at:], cells[:cellSize])
		cells = cells[cellSize:]
	}
	return table, true
}

// allExpired reports whether every id of a table has expired.
func (sh *shard) allExpired(name string, ms int64) bool {
	f, err := sh.tree.openFile(name, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || !isIDTableSize(info.Size()) {
		return false
	}
	var page [pageSize]byte
	for {
		switch _, err := io.ReadFull(f, page[:]); {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			return false
		}
		if _, live := findCell(page[:], func(_ uint64, value int64) bool { return room.SpentUntil(value) > ms }); live {
			return false
		}
	}
}

// isIDTableSize reports whether a table can have this size.
func isIDTableSize(size int64) bool {
	pages := size / pageSize
	return size >= pageSize && size <= maxIDs && size%pageSize == 0 && pages&(pages-1) == 0
}

// pageOf returns the offset of the page of a hash in a table of this size.
func pageOf(hash uint64, size int64) int64 {
	return int64(hash%uint64(size/pageSize)) * pageSize //nolint:gosec // within the size
}

func newCell(hash uint64, value int64) []byte {
	cell := binary.LittleEndian.AppendUint64(make([]byte, 0, cellSize), hash)
	return binary.LittleEndian.AppendUint64(cell, uint64(value)) //nolint:gosec // times are positive
}

// cellAt reads the cell at the start of b. A value of 0 means an empty cell.
func cellAt(b []byte) (hash uint64, value int64) {
	return binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])) //nolint:gosec // it was one
}

// findCell returns the offset of the first cell of a page that matches.
func findCell(page []byte, match func(hash uint64, value int64) bool) (at int, ok bool) {
	for ; at < pageSize; at += cellSize {
		if match(cellAt(page[at:])) {
			return at, true
		}
	}
	return 0, false
}
