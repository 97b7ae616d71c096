package filedriver

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestOpen_MakesAPrivateDirectory(t *testing.T) {
	skip.Unless(t, runtime.GOOS != "windows", "permissions of Unix")
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, dir)
	grant(t, s, driver.Request{Key: "k", ID: "id"})
	for _, path := range append(files(t, dir), "") {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v; want it private", path, info.Mode(), err)
		}
	}
}

func TestOpen_SharesADirectoryWithAGroupWhateverTheUmask(t *testing.T) {
	skip.Unless(t, runtime.GOOS != "windows", "permissions of Unix")
	dir := filepath.Join(t.TempDir(), "shared")
	s := open(t, dir, WithMode(0o770))
	grant(t, s, driver.Request{Key: "k", ID: "id"})
	for path, want := range map[string]fs.FileMode{dir: 0o770, s.tree.path("rooms"): 0o770, recordPath(s, "k"): 0o660, filepath.Dir(recordPath(s, "k")): 0o770} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestOpen_RefusesWhatCannotKeepLocks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	dirs := map[string]string{"a file": file, "below a file": filepath.Join(file, "dir")}
	if runtime.GOOS == "linux" {
		dirs["no place for files"] = "/proc/leasehold"
	}
	if os.Getuid() > 0 {
		locked := t.TempDir()
		noError(t, os.Chmod(locked, 0o500))
		dirs["not writable"] = locked
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			refused(t, dir, driver.ErrUnavailable, dir)
			refused(t, dir, driver.ErrUnavailable, "give a directory")
		})
	}
}

// TestUnusable_HR_F7_ADirectoryWithoutRoomIsNotOneWithoutRights: inodes may run out
// while there is space.
func TestUnusable_HR_F7_ADirectoryWithoutRoomIsNotOneWithoutRights(t *testing.T) {
	err := unusable("/d", &fs.PathError{Op: "mkdir", Path: "/d/rooms", Err: syscall.ENOSPC})
	if text := err.Error(); !strings.Contains(text, "no room for more files") || strings.Contains(text, "this user") {
		t.Error(text)
	}
}

func TestOpen_RefusesOptionsOutOfBounds(t *testing.T) {
	for name, option := range map[string]Option{
		"mode": WithMode(0o077), "special mode": WithMode(fs.ModeSetuid | 0o700), "short": WithTimeout(time.Millisecond),
		"long": WithTimeout(time.Hour), "prefix": WithPrefix("\xff"), "long prefix": WithPrefix(strings.Repeat("x", 513)),
	} {
		t.Run(name, func(t *testing.T) { refused(t, t.TempDir(), driver.ErrInvalid, "", option) })
	}
	refused(t, "", driver.ErrInvalid, "")
}

func TestOpen_TakesAURL(t *testing.T) {
	dir := t.TempDir()
	s, err := Open("file://"+filepath.ToSlash(dir)+"/with%20space?prefix=other:&timeout=3s&mode=0750", WithPrefix("app:"))
	noError(t, err)
	defer closeStore(t, s)
	if s.tree.dir != filepath.Join(dir, "with space") || s.config.prefix != "app:" || s.config.timeout != 3*time.Second || s.config.mode != 0o750 {
		t.Errorf("%s: %+v", s.tree.dir, s.config)
	}
	for _, bad := range []string{
		"redis://localhost", "file:", "file://", "file://host/path", "file:///x#y", "file:///x?unknown=1", "file:///x?timeout=3",
		"file:///x?mode=abc", "file:///x?mode=9", "file:///x?prefix=a&prefix=b", "file://%zz", "file:///x?prefix=%zz", "file:%zz",
	} {
		refused(t, bad, driver.ErrInvalid, "")
	}
	if dir, _, err := parseLocation("file:some/dir"); err != nil || dir != filepath.FromSlash("some/dir") {
		t.Errorf("a relative path: %q, %v", dir, err)
	}
}

func TestPrefix_KeepsStoresOfOneDirectoryApart(t *testing.T) {
	dir := t.TempDir()
	one, two, all := open(t, dir, WithPrefix("one:")), open(t, dir, WithPrefix("two:")), open(t, dir)
	grant(t, one, driver.Request{Key: "k", ID: "id"})
	grant(t, two, driver.Request{Key: "k", ID: "id"})
	keys, _, err := one.List(t.Context(), "", "")
	if err != nil || len(keys) != 1 || keys[0] != "k" {
		t.Errorf("list: %q, %v; want its own key alone", keys, err)
	}
	if snap, err := all.Inspect(t.Context(), "two:k"); err != nil || len(snap.Holders) != 1 {
		t.Errorf("inspect: %+v, %v", snap, err)
	}
	hints := make(chan driver.Hint, 10)
	for _, s := range []*Driver{one, all} {
		sub, err := s.Watch(func(h driver.Hint) { hints <- h })
		noError(t, err)
		defer sub.Close()
	}
	for _, s := range []*Driver{two, one} { // a break by two reaches only the store without a prefix
		_, err := s.Break(t.Context(), "k", "id", "why")
		noError(t, err)
	}
	heard := make(map[string]int)
	for range 3 {
		select {
		case h := <-hints:
			heard[h.Key]++
		case <-time.After(time.Minute):
			t.Fatalf("received %v", heard)
		}
	}
	if want := map[string]int{"k": 1, "one:k": 1, "two:k": 1}; !maps.Equal(heard, want) {
		t.Errorf("received %v, want %v", heard, want)
	}
}

func TestForeignFiles_AreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, open(t, dir))
	s := open(t, dir)
	foreign := []string{
		"README", "rooms/note.txt", "rooms/earlier/note.txt", "rooms/earlier/00/note.txt", "wake/note.txt", "wake/note.lock",
		"locks/note", filepath.Join("rooms", s.bootDir(), "00", "note.txt"), filepath.Join("rooms", s.bootDir(), "00", "k-UPPER.room"),
	}
	for _, name := range foreign {
		path := filepath.Join(dir, filepath.FromSlash(name))
		noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		noError(t, os.WriteFile(path, []byte("mine"), 0o600))
	}
	grant(t, s, driver.Request{Key: "k", ID: "id"})
	release(t, s, "k", "id")
	s.sweep()
	if keys, _, err := s.List(t.Context(), "", ""); err != nil || len(keys) > 0 {
		t.Errorf("list: %q, %v", keys, err)
	}
	for _, name := range foreign {
		if raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil || string(raw) != "mine" {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
}

func TestDirectory_RemovedWhileInUseIsAnEmptyStore(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "dir"))
	first := grant(t, s, driver.Request{Key: "k", ID: "one"})
	removeAll(t, s.tree.dir)
	second := grant(t, s, driver.Request{Key: "k", ID: "two"})
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
}

func TestClose_EndsWaitsForALockAndLaterCalls(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, WithTimeout(time.Minute)), open(t, dir)
	sh := other.shardOf(fileName("k"))
	noError(t, sh.lock.lock(t.Context(), time.Second))
	done := make(chan error, 1)
	go func() {
		_, err := s.Acquire(context.Background(), driver.Request{Key: "k", ID: "id", TTL: time.Minute})
		done <- err
	}()
	eventually(t, "the call waits for the lock", func() bool { return len(s.shardOf(fileName("k")).lock.gate) == 0 })
	closeStore(t, s)
	if err := <-done; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the waiting call: %v", err)
	}
	sh.lock.unlock()
	_, acquire := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "id", TTL: time.Minute})
	_, release := s.Release(t.Context(), driver.Ref{Key: "k", ID: "id"})
	_, _, list := s.List(t.Context(), "", "")
	_, watch := s.Watch(func(driver.Hint) {})
	for _, err := range []error{acquire, release, list, watch} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A cleaner may remove the directory at any moment.
func TestOpen_WhileTheDirectoryIsRemovedEndsNoProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	ctx, cancel := context.WithCancel(t.Context())
	var cleaner sync.WaitGroup
	cleaner.Go(func() {
		for ctx.Err() == nil {
			_ = os.RemoveAll(dir)
		}
	})
	defer cleaner.Wait()
	defer cancel()
	rounds := 100
	if testing.Short() {
		rounds /= 4
	}
	for range rounds {
		s, err := Open(dir)
		switch {
		case err == nil:
			_ = s.Close() // fails if its files were removed
		case !errors.Is(err, driver.ErrUnavailable):
			t.Error(err)
		}
	}
}
