package filedriver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// version is the format of everything in the directory.
const version = 1

// record is the content of a room's file.
type record struct {
	Version int         `json:"leasehold"`
	Key     string      `json:"key"`
	Room    room.Record `json:"room"`
}

// loaded is a room as it was found: raw is nil if there was no file.
type loaded struct {
	room room.Record
	raw  []byte
}

// shard is a directory of records under one lock.
type shard struct {
	dir  string
	mode fs.FileMode
	lock *fileLock
}

// draft is where a shard's records are written before they are put in place. There is
// one per shard since there is one writer: what a crash leaves behind, the next
// writer overwrites.
const draft = "draft"

// load reads a record; no file is an empty room. What is not a record of this
// key is an error that matches ErrMismatch.
func (sh *shard) load(name, key string) (loaded, error) {
	path := filepath.Join(sh.dir, name)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return loaded{}, nil
	}
	if err != nil {
		if info, e := os.Lstat(path); e == nil && !info.Mode().IsRegular() {
			return loaded{}, damaged(path, "not a regular file")
		}
		return loaded{}, unavailable("read record", err)
	}
	rec, err := decode(raw)
	if err != nil {
		return loaded{}, damaged(path, err.Error())
	}
	if rec.Key != key {
		return loaded{}, damaged(path, fmt.Sprintf("it holds the key %q", rec.Key))
	}
	return loaded{room: rec.Room, raw: raw}, nil
}

func decode(raw []byte) (record, error) {
	var rec record
	if err := json.Unmarshal(raw, &rec); err != nil {
		return rec, err
	}
	if rec.Version != version {
		return rec, fmt.Errorf("format %d, where %d is known", rec.Version, version)
	}
	return rec, nil
}

func damaged(path, why string) error {
	return fmt.Errorf("%s is not a lock of ours (%s): inspect it, and remove it if no holder is alive: %w", path, why, driver.ErrMismatch)
}

// save puts the record in place of before, the content of its file.
//
// An idle room leaves no file: its token is followed by the clock, which is
// greater. A token that a caller raised above the clock is remembered until the
// clock has passed it.
//
// Nothing is synced. A crash of the process loses nothing that was written, and
// the leases of a machine that crashed are over: its next boot never reads these
// files, and its clock starts beyond their tokens.
func (sh *shard) save(name, key string, r *room.Record, before []byte, now int64) error {
	if r.Idle(now) && r.Token < now {
		if before == nil {
			return nil
		}
		return sh.remove(name)
	}
	raw, err := json.Marshal(record{Version: version, Key: key, Room: *r})
	if err != nil {
		return unavailable("encode record", err)
	}
	if bytes.Equal(raw, before) {
		return nil
	}
	err = sh.replace(name, raw)
	if err != nil {
		// The shard's first record; or another user's draft is in the way.
		_ = makeDir(sh.dir, sh.mode)
		_ = os.Remove(filepath.Join(sh.dir, draft))
		err = sh.replace(name, raw)
	}
	if err != nil {
		return unavailable("write record", err)
	}
	return nil
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

// writeFile writes a file with the permissions that dirMode gives to files,
// whatever the umask.
func writeFile(path string, raw []byte, dirMode fs.FileMode, sync bool) error {
	mode := dirMode & 0o666
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeDir makes a directory and its parents with the permissions mode, whatever
// the umask, and leaves existing ones alone.
func makeDir(dir string, mode fs.FileMode) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}
