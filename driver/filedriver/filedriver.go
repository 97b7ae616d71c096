// Package filedriver keeps locks in a directory of one machine, shared by any number of
// processes. It supports every kind of lock, needs no server, and is the default store of
// the command.
//
//	store, err := filedriver.Open("/var/lib/leasehold")
//	client, err := leasehold.New(store)
//
// Each lock in use is one small file, which a process replaces as a whole under a file
// lock. If the process dies at any instant, the file holds the old record or the new one,
// and its leases end in time. The clock is the machine's time since boot. All processes
// share it and it cannot be set, so steps of the wall clock do not matter; leases of an
// earlier boot are over. Waiters are woken by file notifications, and poll if the system
// has no more of them.
//
// The directory must lie on a file system of the machine itself, because boots, clocks
// and file locks of several machines have nothing in common: Open refuses network file
// systems that it recognizes. Containers of one kernel can share a directory if they see
// the same boot id (/proc/sys/kernel/random/boot_id).
//
// Records lie in 64 shards, each under one file lock, which a call holds for
// microseconds. If a process is stopped in between, by a signal, a debugger or a frozen
// container, all calls about that shard fail after [WithTimeout] with
// [driver.ErrUnavailable]. A lease of the shard that ends before the process goes on is
// lost, and its holder learns of it in time. If processes are stopped often, use leases
// that are longer than the stops.
//
// The directory is for locks alone. One that holds other files, or that belongs to
// another user and is not shared by [WithMode], is refused. No symbolic link leads the
// store out of it.
package filedriver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Driver is a store in a directory. [Open] returns one. It is safe for concurrent use.
// Any number of Drivers, in one process or in many, may share a directory. In addition to
// [driver.Driver] it implements [driver.Watcher], [driver.Glancer], [driver.Breaker],
// [driver.Checker] and [driver.Marker].
//
// After an error of Acquire, Release or Break the lock is unchanged. The error matches
// [driver.ErrInvalid], [driver.ErrMismatch], [driver.ErrAmnesia], [driver.ErrClosed], or
// [driver.ErrUnavailable] if the file lock was not free in time or a file could not be
// written. If a stopped process holds up a shard, Renew renews the leases of the other shards.
// Glance reads the whole record, as Inspect does. All subscriptions of a Driver share one watch
// of the system (on Linux one of the user's inotify instances) until Close. If the system has no
// watch left, the error of Watch matches [driver.ErrUnavailable] and waiters poll; the next Watch
// tries again.
type Driver struct {
	*rooms
	tree        *tree
	config      config
	machine     machine
	clock       *bootClock
	alive       *flock.Flock // locked, shared, for the life of the Driver
	shards      [shards]*shard
	mailboxLock *fileLock

	calls         atomic.Int64 // since the last sweep
	sweepInterval atomic.Int64 // calls between sweeps
	sweeping      atomic.Bool  // a sweep is under way
	bootsSwept    atomic.Bool  // no files of earlier boots are left

	closed chan struct{}
	work   sync.WaitGroup

	idleFiles idleFiles

	mail atomic.Pointer[mailbox] // nil before the first Watch

	mu   sync.Mutex
	done bool
}

// rooms is the store over the directory.
type rooms = roomdriver.Driver

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil)
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
	_ driver.Marker  = (*Driver)(nil)
)

// Open opens the store in a directory, and makes the directory if it does not exist. The
// location is a path, or a URL:
//
//	/var/lib/leasehold
//	file:///var/lib/leasehold?timeout=500ms
//	file:locks                             relative to the working directory
//
// Parameters of a URL are prefix, timeout (as 2s) and mode (octal, as 0770); options
// override them. A path that begins with "file:" or contains "://" is written with "./"
// before it.
//
// The error matches [driver.ErrInvalid] if the URL or an option is wrong, or the file
// system is known to be unsuitable. It matches [driver.ErrUnavailable] if the directory
// cannot be used as it is: not writable, file locks without effect, or in use by another
// machine.
func Open(location string, options ...Option) (*Driver, error) {
	dir, stated, err := parseLocation(location)
	if err != nil {
		return nil, err
	}
	c, err := newConfig(append(stated, options...))
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, fmt.Errorf("no directory given: %w", driver.ErrInvalid)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	s := &Driver{
		tree: &tree{dir: dir, mode: c.mode}, config: c, machine: c.machine,
		closed: make(chan struct{}),
	}
	s.sweepInterval.Store(1)
	if err := s.prepare(); err != nil {
		_ = s.tree.close()
		return nil, err
	}
	s.rooms = roomdriver.New(table{s}, roomdriver.WithSweep(0))
	return s, nil
}

// Close ends the subscriptions and waits for the store's goroutines. Calls that wait for a
// file lock end at once, and later calls fail with [driver.ErrClosed]; leases stay valid.
// A wait in the system for the file lock of a stopped process ends only with that
// process. Close may be called again.
func (s *Driver) Close() error {
	s.mu.Lock()
	done := s.done
	s.done = true
	s.mu.Unlock()
	if done {
		return nil
	}
	s.closeIdleFiles() // while locks can still be had
	close(s.closed)
	return s.rooms.Close()
}

// start runs f in a goroutine that Close waits for. It reports false after Close.
func (s *Driver) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return false
	}
	s.work.Go(f)
	return true
}

// table is the directory as package roomdriver uses it.
type table struct{ *Driver }

// Visit takes a step on the record of key.
func (t table) Visit(ctx context.Context, key, once, mark string, step room.Step) ([]room.Wake, error) {
	defer t.tick(1)
	r := t.fileOf(key)
	if err := r.lock.lock(ctx, t.config.timeout); err != nil {
		return nil, err
	}
	defer r.lock.unlock()
	return t.apply(ctx, r, once, mark, step)
}

// Prefix returns the prefix of all keys.
func (t table) Prefix() string { return t.config.prefix }

// Update implements [roomdriver.Table]. The driver calls Visit in its place.
func (t table) Update(context.Context, string, func([]byte, time.Time) ([]byte, error)) error {
	return errors.ErrUnsupported
}

// List implements [roomdriver.Table]. The driver neither sweeps nor lists by it.
func (t table) List(context.Context, string, string) (roomdriver.Page, error) {
	return roomdriver.Page{}, errors.ErrUnsupported
}

// Close implements [roomdriver.Table].
func (t table) Close() (err error) {
	t.work.Wait()
	if m := t.mail.Load(); m != nil {
		err = m.close()
	}
	for _, sh := range t.shards {
		err = oneline.Join(err, sh.tree.close())
	}
	return oneline.Join(err, t.alive.Unlock(), t.tree.close())
}

// roomFile is the file of a room.
type roomFile struct {
	*shard
	key, name string
}

// fileOf returns the file of the room of key.
func (s *Driver) fileOf(key string) roomFile {
	key = s.config.prefix + key
	name := fileName(key)
	return roomFile{s.shardOf(name), key, name}
}

// apply takes one step on a record while its shard is locked. The file always holds the
// old record or the new one. The state of the single-use id is written before the record:
// if the process dies in between, the id is spent although it was not released.
func (s *Driver) apply(ctx context.Context, at roomFile, once, mark string, step room.Step) ([]room.Wake, error) {
	before, err := at.load(at.name, at.key)
	if err != nil {
		return nil, err
	}
	defer before.slots.close()
	now, err := s.clock.now(ctx)
	if err != nil {
		return nil, err
	}
	after := before.room
	var memory *usedIDs
	if once != "" {
		memory, err = at.loadUsedIDs(at.name, once, &after)
		defer memory.close()
		if err != nil {
			return nil, err
		}
	}
	after.Store.Marked = mark != "" && after.Token == 0 && s.clock.servesGuarded(now)
	wakes, err := step.Step(&after, now)
	if err != nil {
		return nil, err
	}
	if err := s.clock.reserveToken(ctx, after.Token); err != nil {
		return nil, err
	}
	if token := after.Token; token > before.room.Token && s.clock.runsLow(token) {
		s.start(func() { _ = s.clock.reserveAhead(context.Background(), token) }) // or a later call does
	}
	if memory != nil {
		if err := memory.store(&after, now/1000); err != nil {
			return nil, err
		}
	}
	if err := at.save(at.name, at.key, &after, &before.slots, now, s.keepIdleFile); err != nil {
		return nil, err
	}
	return wakes, nil
}

// unavailable returns the error of a call that had no effect.
func unavailable(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, driver.ErrUnavailable, err)
}

// bounded returns a context for Open and Watch, which wait for file locks without a
// caller's context.
func (s *Driver) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.config.timeout+time.Second)
}
