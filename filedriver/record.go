package filedriver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// record is what the file of a room holds. The key tells whose it is: names of
// long keys are hashes.
type record struct {
	key  string
	room room.Record
}

// loaded is a room as it was found, with its file open unless it was empty.
type loaded struct {
	room  room.Record
	slots slots
}

// shard is a directory of records under one lock.
type shard struct {
	dir  string
	mode fs.FileMode
	lock *fileLock
}

// draft is where a shard's new files are written before they are put in place.
// There is one per shard since there is one writer: what a crash leaves behind,
// the next writer overwrites.
const draft = "draft"

// load reads a record; no file is an empty room. What is not a record of this
// key is an error that matches ErrMismatch. The caller closes what was loaded.
func (sh *shard) load(name, key string) (loaded, error) {
	path := filepath.Join(sh.dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return loaded{}, nil
	}
	if err != nil {
		if info, e := os.Lstat(path); e == nil && !info.Mode().IsRegular() {
			return loaded{}, damaged(path, "it is not a regular file")
		}
		return loaded{}, unavailable("read record", err)
	}
	l, rec, err := read(f)
	if err == nil && rec.key != key {
		err = content(fmt.Sprintf("it holds the key %q", rec.key))
	}
	if err == nil {
		return l, nil
	}
	_ = f.Close()
	if reason := content(""); errors.As(err, &reason) {
		return loaded{}, damaged(path, err.Error())
	}
	return loaded{}, unavailable("read record", err)
}

// read reads the record in an open file.
func read(f *os.File) (loaded, record, error) {
	slots, err := readSlots(f)
	if err != nil {
		return loaded{}, record{}, err
	}
	rec, err := decode(slots.raw)
	if err != nil {
		return loaded{}, record{}, content(err.Error())
	}
	return loaded{room: rec.room, slots: slots}, rec, nil
}

// encode returns what stands in a slot: the key after its length, and the room.
func encode(key string, r *room.Record) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 512), uint64(len(key)))
	return room.Append(append(b, key...), r, r.End(0))
}

func decode(b []byte) (record, error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return record{}, errors.New("it begins with no key")
	}
	key, rest := b[size:size+int(n)], b[size+int(n):] //nolint:gosec // within b
	r, err := room.Decode(rest)
	return record{key: string(key), room: r}, err
}

func damaged(path, why string) error {
	return fmt.Errorf("%s is not a lock of ours (%s): inspect it, and remove it if no holder is alive: %w", path, why, driver.ErrMismatch)
}

// save puts the record in place of the one that was loaded.
//
// An idle room needs no file: its token is followed by the clock, which is
// greater. A token that a caller raised above the clock is remembered until the
// clock has passed it. lingers asks whether an idle room's file may stay for now.
//
// Nothing is synced. A crash of the process loses nothing that was written, and
// the leases of a machine that crashed are over: its next boot never reads these
// files, and its clock starts beyond their tokens.
func (sh *shard) save(name, key string, r *room.Record, before *slots, now int64, lingers func(name string) bool) error {
	if idle := r.Idle(now) && r.Token < now; idle && before.file == nil {
		return nil
	} else if idle && !lingers(name) {
		before.close()
		return sh.remove(name)
	}
	raw := encode(key, r)
	if bytes.Equal(raw, before.raw) {
		return nil
	}
	if before.file != nil {
		if ok, err := before.write(raw); ok {
			return written(err)
		}
		before.close()
	}
	file := newSlots(raw)
	if len(file) > 2*maxSlot {
		return fmt.Errorf("the record of a room cannot grow beyond %d bytes: %w", maxSlot, driver.ErrUnavailable)
	}
	return written(sh.put(name, file))
}

func written(err error) error {
	if err != nil {
		return unavailable("write record", err)
	}
	return nil
}

// put has a file replaced, or made.
func (sh *shard) put(name string, raw []byte) error {
	if sh.replace(name, raw) == nil {
		return nil
	}
	// The shard's first record.
	_ = makeDir(sh.dir, sh.mode)
	return sh.replace(name, raw)
}

func (sh *shard) replace(name string, raw []byte) error {
	path := filepath.Join(sh.dir, draft)
	if err := writeFile(path, raw, sh.mode, false); err != nil {
		return err
	}
	return os.Rename(path, filepath.Join(sh.dir, name))
}

func (sh *shard) remove(name string) error {
	err := os.Remove(filepath.Join(sh.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("remove record", err)
	}
	return nil
}
