package filedriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// The directory:
//
//	epoch                   the clock of this boot
//	alive                   held shared by every process that uses the directory
//	locks/00 … 3f           a lock file per shard; never removed
//	locks/epoch, wake       lock files of the epoch and of the mailboxes' making
//	rooms/<boot>/00 … 3f/   the records, a file per room that is in use
//	wake/<id>, <id>.lock    the mailbox of a process and the sign that it lives
//
// Files of other names are left alone.

// prepare makes the directory, checks it and joins its clock.
func (s *Driver) prepare() error {
	if err := s.tree.make(); err != nil {
		return unusable(s.tree.dir, err)
	}
	if err := checkLocal(s.tree.dir); err != nil {
		return err
	}
	if err := s.checkOurs(); err != nil {
		return err
	}
	if err := s.makeDirs(); err != nil {
		return unusable(s.tree.dir, err)
	}
	if err := s.checkWritable(); err != nil {
		return err
	}
	if err := s.checkLocks(); err != nil {
		return err
	}
	ctx, cancel := s.bounded()
	defer cancel()
	s.alive = s.tree.newFlock("alive")
	s.clock = &bootClock{
		machine: s.machine, tree: s.tree, path: s.tree.path(epochFile),
		lock: s.newLock("epoch"), timeout: s.config.timeout,
	}
	s.mailboxLock = s.newLock("wake")
	for i := range s.shards { // before a lock is taken: restore needs all of them
		name := fmt.Sprintf("%02x", i)
		s.shards[i] = &shard{tree: s.tree.below(filepath.Join("rooms", s.bootDir(), name)), lock: s.newLock(name)}
	}
	if err := s.clock.start(ctx, s.checkUnused); err != nil {
		return err
	}
	if ok, err := s.alive.TryRLock(); err != nil || !ok {
		return unusable(s.tree.dir, fmt.Errorf("%s cannot be locked: %w", s.alive.Path(), oneline.Join(err, s.alive.Close())))
	}
	return nil
}

func (s *Driver) makeDirs() error {
	if err := s.tree.make(); err != nil {
		return err
	}
	for _, dir := range []string{"locks", "rooms", "wake"} {
		if err := s.tree.makeDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// restore makes the directory again after it was removed while in use. All locks are then
// free, and the clock goes on.
func (s *Driver) restore() {
	if s.makeDirs() == nil {
		for _, sh := range s.shards {
			s.tree.makeLock(sh.lock.name)
		}
		s.tree.makeLock(s.clock.lock.name)
		s.tree.makeLock(s.mailboxLock.name)
		s.clock.reserved.Store(0) // the next call reads the epoch file
	}
}

// bootDir returns the name of the directory of this boot's records. Each boot has its own, so
// records that a power failure left half-written are never read.
func (s *Driver) bootDir() string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, s.machine.boot)
}

func (s *Driver) checkWritable() error {
	f, err := os.CreateTemp(s.tree.dir, "probe-*")
	if err != nil {
		return unusable(s.tree.dir, err)
	}
	if err := oneline.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return unusable(s.tree.dir, err)
	}
	return nil
}

// checkLocks checks that a file lock excludes.
func (s *Driver) checkLocks() error {
	name := filepath.Join("locks", "probe")
	first, second := s.tree.newFlock(name), s.tree.newFlock(name)
	ok, err := first.TryLock()
	if err != nil {
		return unusable(s.tree.dir, fmt.Errorf("file locks fail: %w", err))
	}
	if !ok {
		return nil // another process makes the same check: locks work
	}
	defer first.Close()
	defer second.Close()
	if ok, err := second.TryLock(); err != nil || ok {
		return unusable(s.tree.dir, fmt.Errorf("file locks have no effect there: %w", oneline.Join(err, errors.ErrUnsupported)))
	}
	return nil
}

// checkOurs refuses a directory that belongs to another user, or holds other files.
func (s *Driver) checkOurs() error {
	info, err := os.Lstat(s.tree.dir)
	if err != nil {
		return unusable(s.tree.dir, err)
	}
	if user, foreign := foreignOwner(info); foreign && s.config.mode&0o070 == 0 {
		return fmt.Errorf("directory %s belongs to %s, who could not use the files of this user, and may put links there: run as that user, or share it among a group with mode=0770: %w", s.tree.dir, user, driver.ErrUnavailable)
	}
	return s.checkEmpty()
}

// checkEmpty refuses a directory without a store that is not empty.
func (s *Driver) checkEmpty() error {
	if _, err := s.tree.lstat("epoch"); err == nil {
		return nil
	}
	entries, err := s.tree.entries(".")
	if err != nil {
		return unusable(s.tree.dir, err)
	}
	for _, e := range entries {
		if !partOfStore(e.Name()) {
			return fmt.Errorf("directory %s holds other things (%s): give a directory of its own: %w", s.tree.dir, e.Name(), driver.ErrUnavailable)
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

// checkUnused is called if another boot used the directory last. No process of that boot
// can be alive, unless it was a boot of another machine.
func (s *Driver) checkUnused() error {
	ok, err := s.alive.TryLock()
	if err != nil {
		return unusable(s.tree.dir, err)
	}
	if !ok {
		return fmt.Errorf("%s is in use by another machine: take a directory of this machine's own, or a Redis store: %w", s.tree.dir, driver.ErrUnavailable)
	}
	return s.alive.Unlock()
}

func unusable(dir string, err error) error {
	advice := "give a directory that this user can write to"
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		advice = "give a directory, not a file"
	case errors.Is(err, syscall.ENOSPC):
		advice = "its file system has no room for more files"
	}
	return fmt.Errorf("directory %s cannot keep locks: %w: %w; %s", dir, driver.ErrUnavailable, err, advice)
}
