package filedriver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// A user who may write to the directory can put links there, so no file is written, locked
// or read through a link: files are made where there is none, and opened without following.
// Everything that is made has the permissions of the store whatever the umask of the process
// is, so that all users who share the directory can use it.

// writeFile writes a new file with the permissions that dirMode gives to files. It
// replaces a file that a crash has left, or a link.
func writeFile(path string, raw []byte, dirMode fs.FileMode, sync bool) error {
	f, err := makeFile(path, dirMode)
	if errors.Is(err, fs.ErrExist) {
		if err := os.Remove(path); err != nil {
			return err
		}
		f, err = makeFile(path, dirMode)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil && sync {
		err = f.Sync()
	}
	return oneline.Join(err, f.Close())
}

// makeFile makes a new file with the permissions that dirMode gives to files.
func makeFile(path string, dirMode fs.FileMode) (*os.File, error) {
	mode := dirMode & 0o666
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil || mode == 0o600 {
		return f, err
	}
	if err := f.Chmod(mode); err != nil {
		return nil, oneline.Join(err, f.Close())
	}
	return f, nil
}

// newFlock returns a file lock of the store. If several users share it, newFlock makes
// its file.
func (s *Driver) newFlock(path string) *flock.Flock {
	s.makeLock(path)
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDONLY|noFollow), flock.SetPermissions(s.config.mode&0o666))
}

// makeLock makes the file of a lock that several users share. The file has a temporary
// name until it has its permissions, since the process may die in between and the file is
// never removed.
func (s *Driver) makeLock(path string) {
	if _, err := os.Lstat(path); err == nil || s.config.mode&0o066 == 0 {
		return
	}
	unnamed := temporaryName(path)
	f, err := makeFile(unnamed, s.config.mode)
	if err != nil {
		return
	}
	defer os.Remove(unnamed)
	_ = f.Close()
	if err := os.Link(unnamed, path); err == nil || errors.Is(err, fs.ErrExist) {
		return
	}
	if f, err := makeFile(path, s.config.mode); err == nil { // where there are no links
		_ = f.Close()
	}
}

// temporaryName is a name for a file or directory that will be renamed to path.
func temporaryName(path string) string { return path + temporaryMark + rand.Text() }

// temporaryMark is part of every temporary name, and of no other name.
const temporaryMark = ".new-"

// makeDir makes a directory, and missing parents, with the permissions mode. It leaves
// existing ones as they are. A directory that a group shares passes its group on to new
// files in it.
func makeDir(dir string, mode fs.FileMode) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	err := makeOneDir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(dir), mode); err != nil {
			return err
		}
		err = makeOneDir(dir, mode)
	}
	if err == nil {
		return nil
	}
	_, there := os.ReadDir(dir) // another process made it, or it is no directory
	if there != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return there
}

// makeOneDir makes a directory, under a temporary name until it has its permissions.
func makeOneDir(dir string, mode fs.FileMode) error {
	if mode&0o070 == 0 {
		if err := os.Mkdir(dir, mode); err != nil {
			return err
		}
		return os.Chmod(dir, mode)
	}
	unnamed := temporaryName(dir)
	err := os.Mkdir(unnamed, mode)
	if err == nil {
		err = os.Chmod(unnamed, mode|fs.ModeSetgid)
	}
	if err == nil {
		err = os.Rename(unnamed, dir)
	}
	if err != nil {
		_ = os.Remove(unnamed)
	}
	return err
}

// checkOurs refuses a directory that belongs to another user, or holds other files.
func (s *Driver) checkOurs() error {
	info, err := os.Lstat(s.dir)
	if err != nil {
		return unusable(s.dir, err)
	}
	if user, foreign := foreignOwner(info); foreign && s.config.mode&0o070 == 0 {
		return fmt.Errorf("directory %s belongs to %s, who could not use what this user puts there, and may put links there: run as that user, or share it among a group with mode=0770: %w", s.dir, user, driver.ErrUnavailable)
	}
	return s.checkEmpty()
}

// checkEmpty refuses a directory without a store that is not empty.
func (s *Driver) checkEmpty() error {
	if _, err := os.Lstat(s.path("epoch")); err == nil {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return unusable(s.dir, err)
	}
	for _, e := range entries {
		if !partOfStore(e.Name()) {
			return fmt.Errorf("directory %s holds other things (%s): give a directory of its own: %w", s.dir, e.Name(), driver.ErrUnavailable)
		}
	}
	return nil
}

// partOfStore reports whether a store may have left this name in its directory before it
// had an epoch file, or after that file was removed.
func partOfStore(name string) bool {
	switch name {
	case "alive", "locks", "rooms", "wake", "epoch", "epoch.draft", "lost+found":
		return true
	}
	if probe, _ := filepath.Match("probe-*", name); probe {
		return true
	}
	of, _, half := strings.Cut(name, temporaryMark)
	return half && partOfStore(of)
}
