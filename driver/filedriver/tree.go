package filedriver

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// tree is the directory of a store, or one below it. All names are relative to it. A user
// with the right to write to the directory can put links there, so no operation leaves the
// directory of the store through a link. Directories and files get the permissions of the
// store whatever the umask of the process is, so that all users of a shared directory can
// use them.
type tree struct {
	dir    string      // an absolute path
	mode   fs.FileMode // of directories
	parent *tree       // nil for the directory of the store

	mu   sync.Mutex
	root *os.Root
	info fs.FileInfo // of root
}

// below returns the directory of that name in the tree.
func (t *tree) below(name string) *tree {
	return &tree{dir: t.path(name), mode: t.mode, parent: t}
}

// path returns the absolute path of a name, for messages and for operations that need one.
func (t *tree) path(elements ...string) string {
	return filepath.Join(append([]string{t.dir}, elements...)...)
}

// open returns the open directory. It opens the directory again if it was removed and made
// again, or replaced, since processes that start now use the new one.
func (t *tree) open() (*os.Root, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root != nil {
		if same, err := isSameFile(t.dir, t.info); same || err != nil {
			return t.root, err
		}
	}
	root, err := t.openRoot()
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, oneline.Join(err, root.Close())
	}
	t.root, t.info = root, info // other goroutines may still use the old one
	return root, nil
}

func (t *tree) openRoot() (*os.Root, error) {
	if t.parent == nil {
		return os.OpenRoot(t.dir)
	}
	root, err := t.parent.open()
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(t.parent.dir, t.dir)
	if err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

// close closes the directory, after the last use of the tree.
func (t *tree) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root == nil {
		return nil
	}
	return t.root.Close()
}

func (t *tree) openFile(name string, flag int) (*os.File, error) {
	root, err := t.open()
	if err != nil {
		return nil, err
	}
	return root.OpenFile(name, flag|noFollow, 0)
}

func (t *tree) lstat(name string) (fs.FileInfo, error) {
	root, err := t.open()
	if err != nil {
		return nil, err
	}
	return root.Lstat(name)
}

func (t *tree) rename(from, to string) error {
	root, err := t.open()
	if err != nil {
		return err
	}
	return root.Rename(from, to)
}

func (t *tree) remove(name string) error {
	root, err := t.open()
	if err != nil {
		return err
	}
	return root.Remove(name)
}

// entries lists a directory.
func (t *tree) entries(name string) ([]fs.DirEntry, error) {
	d, err := t.openFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

// sync makes renames in the directory itself durable. Windows has no such operation.
func (t *tree) sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := t.openFile(".", os.O_RDONLY)
	if err != nil {
		return err
	}
	return oneline.Join(d.Sync(), d.Close())
}

// writeFile writes a new file. It replaces a file that a crash has left, or a link.
func (t *tree) writeFile(name string, raw []byte, sync bool) error {
	f, err := t.makeFile(name)
	if errors.Is(err, fs.ErrExist) {
		if err := t.remove(name); err != nil {
			return err
		}
		f, err = t.makeFile(name)
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

// makeFile makes a new file, with the permissions of directories without their execute bits.
func (t *tree) makeFile(name string) (*os.File, error) {
	root, err := t.open()
	if err != nil {
		return nil, err
	}
	mode := t.mode & 0o666
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil || mode == 0o600 {
		return f, err
	}
	if err := f.Chmod(mode); err != nil {
		return nil, oneline.Join(err, f.Close())
	}
	return f, nil
}

// isShared reports whether several users share the directory.
func (t *tree) isShared() bool { return t.mode&0o066 != 0 }

// newFlock returns a file lock. If several users share the directory, newFlock makes the
// file, since package flock opens paths, and would make a file behind a link.
func (t *tree) newFlock(name string) *flock.Flock {
	flag := os.O_RDONLY | noFollow
	if t.isShared() {
		t.makeLock(name)
	} else {
		flag |= os.O_CREATE
	}
	return flock.New(t.path(name), flock.SetFlag(flag), flock.SetPermissions(t.mode&0o666))
}

// makeLock makes the file of a lock that several users share. The file has a temporary
// name until it has its permissions, since the process may die in between and the file is
// never removed.
func (t *tree) makeLock(name string) {
	if _, err := t.lstat(name); err == nil || !t.isShared() {
		return
	}
	unnamed := temporaryName(name)
	f, err := t.makeFile(unnamed)
	if err != nil {
		return
	}
	defer func() { _ = t.remove(unnamed) }()
	_ = f.Close()
	root, err := t.open()
	if err != nil {
		return
	}
	if err := root.Link(unnamed, name); err == nil || errors.Is(err, fs.ErrExist) {
		return
	}
	if f, err := t.makeFile(name); err == nil { // where there are no links
		_ = f.Close()
	}
}

// temporaryName returns a name for a file or directory that will be renamed to name.
func temporaryName(name string) string { return name + temporaryMark + rand.Text() }

// temporaryMark is part of every temporary name, and of no other name.
const temporaryMark = ".new-"

// make makes the directory itself, and missing parents.
func (t *tree) make() error {
	if t.parent != nil {
		name, err := filepath.Rel(t.parent.dir, t.dir)
		if err != nil {
			return err
		}
		return t.parent.makeDir(name)
	}
	return makeDir(system{}, t.dir, t.mode)
}

// system makes directories outside of a store. It needs no right to read their parents.
type system struct{}

func (system) Stat(path string) (fs.FileInfo, error)     { return os.Stat(path) }
func (system) Mkdir(path string, mode fs.FileMode) error { return os.Mkdir(path, mode) }
func (system) Chmod(path string, mode fs.FileMode) error { return os.Chmod(path, mode) }
func (system) Rename(from, to string) error              { return os.Rename(from, to) }
func (system) Remove(path string) error                  { return os.Remove(path) }

// maker is where directories are made: an [os.Root] or the system.
type maker interface {
	Stat(name string) (fs.FileInfo, error)
	Mkdir(name string, mode fs.FileMode) error
	Chmod(name string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
}

// makeDir makes a directory in the tree, and missing parents.
func (t *tree) makeDir(name string) error {
	root, err := t.open()
	if err != nil {
		return err
	}
	return makeDir(root, name, t.mode)
}

// makeDir makes a directory, and missing parents, with the permissions mode. Existing
// directories stay unchanged. A directory that a group shares passes its group on to new
// files in it.
func makeDir(root maker, name string, mode fs.FileMode) error {
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	err := makeOneDir(root, name, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(root, filepath.Dir(name), mode); err != nil {
			return err
		}
		err = makeOneDir(root, name, mode)
	}
	if err == nil {
		return nil
	}
	info, there := root.Stat(name) // another process made it, or it is no directory
	switch {
	case there == nil && info.IsDir():
		return nil
	case there == nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	case !errors.Is(there, fs.ErrNotExist): // such as a link that leads out of the directory
		return there
	}
	return err
}

// makeOneDir makes a directory, under a temporary name until it has its permissions.
func makeOneDir(root maker, name string, mode fs.FileMode) error {
	if mode&0o070 == 0 {
		if err := root.Mkdir(name, mode); err != nil {
			return err
		}
		return root.Chmod(name, mode)
	}
	unnamed := temporaryName(name)
	err := root.Mkdir(unnamed, mode)
	if err == nil {
		err = root.Chmod(unnamed, mode|fs.ModeSetgid)
	}
	if err == nil {
		err = root.Rename(unnamed, name)
	}
	if err != nil {
		_ = root.Remove(unnamed)
	}
	return err
}
