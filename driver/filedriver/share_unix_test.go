//go:build unix

package filedriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func init() {
	helper = func(args []string) {
		dir, user := args[0], args[1]
		syscall.Umask(0o077)
		s := must(Open(dir, WithMode(0o770)))
		sub := must(s.Watch(func(driver.Hint) {}))
		for _, key := range []string{"both", user} {
			reply := must(s.Acquire(context.Background(), driver.Request{Key: key, ID: user, TTL: time.Minute, HintAddress: sub.Address()}))
			if reply.State != driver.Granted {
				panic(fmt.Sprint("state ", reply.State))
			}
		}
		must(s.Release(context.Background(), driver.Ref{Key: "both", ID: user}))
		must(0, s.Close())
	}
}

// must ends a helper that cannot go on.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// runAs runs the helper as another user of a group if the test runs as root, and otherwise as
// this user.
func runAs(t *testing.T, program string, uid, gid uint32, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), helperEnv+"="+strings.Join(args, "\n"))
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{gid}}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("user %d: %v\n%s", uid, err, out)
	}
}

func TestMode_HR_F1_TwoUsersOfAGroupShareADirectoryUnderEveryUmask(t *testing.T) {
	const group = 34567
	top := shared(t, group)
	dir := filepath.Join(top, "missing", "locks") // Open makes both parents
	program := filepath.Join(top, "program")
	text, err := os.ReadFile(os.Args[0])
	noError(t, errors.Join(err, os.WriteFile(program, text, 0o755), os.Chmod(program, 0o755)))
	for uid := uint32(23001); uid < 23003; uid++ {
		for range 2 {
			runAs(t, program, uid, group, dir, fmt.Sprint("user", uid))
		}
	}
	for _, name := range files(t, dir) {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%s: mode %v, %v; want the group to read and write it", name, info.Mode(), err)
		}
	}
	for _, name := range []string{"..", ".", "locks", "rooms", "wake"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o770 || info.Mode()&fs.ModeSetgid == 0 {
			t.Errorf("%s: mode %v, %v; want it shared, and to pass its group on", name, info.Mode(), err)
		}
	}
}

// A process may be stopped or killed at any moment. A file that it creates appears with its
// final mode: otherwise other members of the group could never use it.
func TestMode_HR_F1_NothingIsThereBeforeItIsShared(t *testing.T) {
	dir := t.TempDir()
	tr := &tree{dir: dir, mode: 0o770}
	defer tr.close()
	rounds := 2000
	if testing.Short() {
		rounds /= 20
	}
	for what, makes := range map[string]func(name string) error{
		"file lock": func(name string) error { return tr.newFlock(name).Close() },
		"directory": func(name string) error { return tr.makeDir(name) },
	} {
		want := map[string]fs.FileMode{"file lock": 0o660, "directory": 0o770 | fs.ModeDir | fs.ModeSetgid}[what]
		for i := range rounds {
			name := fmt.Sprint(what, i)
			path := filepath.Join(dir, name)
			seen, started := make(chan fs.FileMode, 1), make(chan struct{})
			go func() {
				close(started)
				for {
					if info, err := os.Lstat(path); err == nil {
						seen <- info.Mode()
						return
					}
				}
			}()
			<-started
			noError(t, makes(name))
			if mode := <-seen; mode != want {
				t.Fatalf("%s: seen with the mode %v in round %d, want %v at once", what, mode, i, want)
			}
		}
	}
	for _, name := range files(t, dir) {
		if strings.Contains(name, temporaryMark) {
			t.Errorf("%s was left", name)
		}
	}
}

// shared returns a directory that other users can reach. It belongs to a group if this user
// may set that.
func shared(t *testing.T, group int) string {
	t.Helper()
	top, err := os.MkdirTemp("", "leasehold-share-*")
	noError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	if os.Getuid() == 0 {
		noError(t, os.Chown(top, 0, group))
	}
	noError(t, os.Chmod(top, 0o770|fs.ModeSetgid))
	return top
}

func TestLinks_HR_F2_NothingIsWrittenThroughALink(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	noError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	f := newFake()
	dir := filepath.Join(t.TempDir(), "dir")
	closeStore(t, open(t, dir, f.option()))
	f.reboot("boot-2") // so that the epoch is written
	s := &Driver{machine: machine{boot: f.boot}}
	room := filepath.Join("rooms", s.bootDir())
	for i := range shards {
		name := fmt.Sprintf("%02x", i)
		noError(t, os.MkdirAll(filepath.Join(dir, room, name), 0o700))
		for _, link := range []string{draft, fileName("read")} {
			noError(t, os.Symlink(victim, filepath.Join(dir, room, name, link)))
		}
	}
	noError(t, os.Symlink(victim, filepath.Join(dir, "epoch.draft")))
	s = open(t, dir, f.option())
	grant(t, s, driver.Request{Key: "written", ID: "id"})
	if reply, err := s.Acquire(t.Context(), driver.Request{Key: "read", ID: "id", TTL: time.Minute}); !errors.Is(err, driver.ErrMismatch) {
		t.Errorf("a record that is a link: %+v, %v; want a mismatch", reply, err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file that the links lead to holds %q, %v", text, err)
	}
	closeStore(t, s)
	for _, lock := range []string{"alive", "locks/00", "locks/epoch", "locks/probe"} {
		missing := victim + filepath.Base(lock)
		_ = os.Remove(filepath.Join(dir, lock))
		noError(t, os.Symlink(missing, filepath.Join(dir, lock)))
		if s, err := Open(dir, f.option()); err == nil {
			for i := range 200 {
				_, _ = s.Acquire(t.Context(), driver.Request{Key: fmt.Sprint(i), ID: "id", TTL: time.Minute})
			}
			_ = s.Close()
		}
		if _, err := os.Lstat(missing); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file was made where the link leads to (%v)", lock, err)
		}
		noError(t, os.Remove(filepath.Join(dir, lock)))
	}
}

// A member of the group replaces a directory of the store by a link, while the store is in
// use or before. The store then fails, and does not write, remove or list files elsewhere.
func TestLinks_HR_F2_NoDirectoryOfTheStoreIsALinkOutOfIt(t *testing.T) {
	shared := WithMode(0o770)
	for _, name := range []string{"locks", "rooms", "wake", "boot", "shard"} {
		t.Run(name, func(t *testing.T) {
			dir, other := filepath.Join(t.TempDir(), "dir"), filepath.Join(t.TempDir(), "other")
			theirs := open(t, other, shared)
			s := open(t, dir, shared, looking)
			var keys []string // of one shard
			for i := 0; len(keys) < 12; i++ {
				if key := fmt.Sprint(i); s.shardOf(fileName(s.config.prefix+key)) == s.shards[0] {
					keys = append(keys, key)
				}
			}
			held, before, after := keys[:4], keys[4:8], keys[8:]
			for i := range held {
				grant(t, theirs, driver.Request{Key: held[i], ID: "id"})
				grant(t, s, driver.Request{Key: before[i], ID: "id"})
			}
			had := files(t, other)
			switch name {
			case "boot":
				name = filepath.Join("rooms", s.bootDir())
			case "shard":
				name = filepath.Join("rooms", s.bootDir(), "00")
			}
			link := filepath.Join(dir, name)
			noError(t, errors.Join(os.Rename(link, link+".old"), os.Symlink(filepath.Join(other, name), link)))
			for i := range held {
				_, _ = s.Acquire(t.Context(), driver.Request{Key: after[i], ID: "id", TTL: time.Minute})
				_, _ = s.Release(t.Context(), driver.Ref{Key: held[i], ID: "id"})
			}
			_, _ = s.Watch(func(driver.Hint) {})
			s.sweep()
			if again, err := Open(dir, shared); err == nil {
				_, _ = again.Acquire(t.Context(), driver.Request{Key: after[0], ID: "again", TTL: time.Minute})
				again.sweep()
				closeStore(t, again)
			}
			if has := files(t, other); !slices.Equal(had, has) {
				t.Errorf("another directory has %d files, had %d", len(has), len(had))
			}
			for _, key := range held {
				if snap, err := theirs.Inspect(t.Context(), key); err != nil || len(snap.Holders) != 1 {
					t.Fatalf("lock %s of another directory: %+v, %v; want its holder", key, snap, err)
				}
			}
		})
	}
}

func TestOpen_HR_F2_TakesNoDirectoryThatHoldsOtherThings(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, "letter.txt"), nil, 0o600))
	refused(t, dir, driver.ErrUnavailable, "letter.txt")
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("it was changed: %v", left)
	}
}

func TestOpen_HR_F2_TakesNoDirectoryOfSomebodyElseUnlessItIsShared(t *testing.T) {
	info, err := os.Lstat(t.TempDir())
	noError(t, err)
	stat := *info.Sys().(*syscall.Stat_t)
	if _, foreign := foreignOwner(owned{info, &stat}); foreign {
		t.Error("a directory of this user is taken for foreign")
	}
	stat.Uid = 23001
	if name, foreign := foreignOwner(owned{info, &stat}); !foreign || !strings.Contains(name, "23001") {
		t.Errorf("a directory of user 23001 belongs to %q, %v", name, foreign)
	}
	if os.Getuid() != 0 {
		return // only root may give a directory away
	}
	dir := t.TempDir()
	noError(t, os.Chown(dir, 23001, -1))
	refused(t, dir, driver.ErrUnavailable, "23001")
	refused(t, dir, driver.ErrUnavailable, "mode=0770")
	closeStore(t, open(t, dir, WithMode(0o770)))
}

// owned is a file with another owner.
type owned struct {
	fs.FileInfo
	stat *syscall.Stat_t
}

func (o owned) Sys() any { return o.stat }

func TestLinks_HR_F2_EpochThatIsALinkIsNotRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	closeStore(t, open(t, dir))
	elsewhere := filepath.Join(t.TempDir(), "epoch")
	noError(t, errors.Join(os.Rename(filepath.Join(dir, "epoch"), elsewhere), os.Symlink(elsewhere, filepath.Join(dir, "epoch"))))
	refused(t, dir, driver.ErrUnavailable, "")
}
