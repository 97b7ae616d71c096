package filedriver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// record is the content of a lock's file, and the open file, which is closed by its user. It is
// empty without a file. It holds the key, since names of long keys are hashes.
type record struct {
	key   string
	room  room.Record
	slots slots
}

// shard is a directory of records under one lock.
type shard struct {
	tree *tree
	lock *fileLock
}

// draft is the name under which a shard's new files are written before they are renamed.
// Each shard has its own, and one writer at a time. The next writer overwrites the remains
// of a crash.
const draft = "draft"

// load reads a record; no file means an empty record. A file that is no record of this
// key is an error that matches ErrMismatch. The caller closes the record's file.
func (sh *shard) load(name, key string) (record, error) {
	f, err := sh.tree.openFile(name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		if info, e := sh.tree.lstat(name); e == nil && !info.Mode().IsRegular() {
			return record{}, damaged(sh.tree.path(name), "it is not a regular file")
		}
		return record{}, unavailable("read record", err)
	}
	rec, err := read(f)
	if err == nil && rec.key != key {
		err = contentError(fmt.Sprintf("it holds the key %q", rec.key))
	}
	if err == nil {
		return rec, nil
	}
	_ = f.Close()
	if reason := contentError(""); errors.As(err, &reason) {
		return record{}, damaged(sh.tree.path(name), err.Error())
	}
	return record{}, unavailable("read record", err)
}

// read reads the record in an open file.
func read(f *os.File) (record, error) {
	slots, err := readSlots(f)
	if err != nil {
		return record{}, err
	}
	key, r, err := decode(slots.raw)
	if err != nil {
		return record{}, contentError(err.Error())
	}
	return record{key, r, slots}, nil
}

// encode returns an unformatted slot: space for its header, the length of the key, the key, and the
// record.
func encode(key string, r *room.Record) []byte {
	b := binary.AppendUvarint(make([]byte, headerSize, 512), uint64(len(key)))
	return room.Append(append(b, key...), r, r.End(0))
}

func decode(b []byte) (key string, r room.Record, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return "", r, errors.New("it begins with no key")
	}
	end := size + int(n) //nolint:gosec // within b
	r, err = room.Decode(b[end:])
	return string(b[size:end]), r, err
}

func damaged(path, why string) error {
	return fmt.Errorf("%s is not a lock of ours (%s): inspect it, and remove it if no holder is alive: %w", path, why, driver.ErrMismatch)
}

// save replaces the record that was loaded.
//
// An idle lock needs no file: the clock's next token is greater than its own. A token
// that a caller raised above the clock is kept until the clock has passed it. keepIdle
// decides whether the file of an idle lock may stay for now.
//
// There is no fsync. A crash of the process loses no written data, and after a crash of
// the machine the leases are over: the next boot never reads these files, and its clock
// starts beyond their tokens.
func (sh *shard) save(name, key string, r *room.Record, before *slots, now int64, keepIdle func(name string) bool) error {
	if idle := r.Idle(now) && r.Token < now; idle && before.file == nil {
		return nil
	} else if idle && !keepIdle(name) {
		before.close()
		return sh.remove(name)
	}
	slot := encode(key, r)
	if bytes.Equal(slot[headerSize:], before.raw) {
		return nil
	}
	if before.file != nil {
		if ok, err := before.write(slot); ok {
			return written(err)
		}
		before.close()
	}
	file := newSlots(slot)
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

// put replaces or makes a file.
func (sh *shard) put(name string, raw []byte) error {
	if sh.replace(name, raw) == nil {
		return nil
	}
	// The directory is missing before the shard's first record.
	if err := sh.tree.make(); err != nil {
		return err
	}
	return sh.replace(name, raw)
}

func (sh *shard) replace(name string, raw []byte) error {
	if err := sh.tree.writeFile(draft, raw, false); err != nil {
		return err
	}
	return sh.tree.rename(draft, name)
}

func (sh *shard) remove(name string) error {
	err := sh.tree.remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("remove record", err)
	}
	return nil
}
