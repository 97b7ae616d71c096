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
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/hints"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Driver is a store in a directory. [Open] returns one. It is safe for concurrent use.
// Any number of Drivers, in one process or in many, may share a directory. In addition to
// [driver.Driver] it implements [driver.Watcher], [driver.Glancer], [driver.Breaker],
// [driver.Checker] and [driver.Marker].
type Driver struct {
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

	subs          hints.Subscriptions
	mailboxMaking sync.Mutex // held while the mailbox is made

	mu   sync.Mutex
	done bool
	mail *mailbox // nil before the first Watch
}

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
	return s, nil
}

// Acquire asks for a lock, and answers Granted, Queued, Busy, Gone or Resized. After an
// error the lock is unchanged. The error matches [driver.ErrInvalid],
// [driver.ErrMismatch], [driver.ErrAmnesia], [driver.ErrClosed], or
// [driver.ErrUnavailable] if the file lock was not free in time or a file could not be
// written. See [driver.Driver].
func (s *Driver) Acquire(ctx context.Context, req driver.Request) (reply driver.Reply, err error) {
	once := ""
	if req.SingleUseID {
		once = req.ID
	}
	e := s.update(ctx, req.Key, once, func(r *room.Record, now int64) (wakes []room.Wake) {
		req.Guard = req.Guard && r.Token == 0 && !s.clock.servesGuarded(now)
		reply, wakes, err = room.Acquire(r, req, now)
		return wakes
	})
	if e != nil {
		return driver.Reply{}, e
	}
	return reply, err
}

// Release ends a lease or leaves the queue, and answers Released, Left, Gone, or Busy if
// the lease belongs to another visit. The same step notifies the next waiter. After an
// error the lock is unchanged. See [driver.Driver].
func (s *Driver) Release(ctx context.Context, ref driver.Ref) (reply driver.Reply, err error) {
	once := ""
	if ref.SingleUseID && ref.RejectIDFor > 0 {
		once = ref.ID
	}
	err = s.update(ctx, ref.Key, once, func(r *room.Record, now int64) (wakes []room.Wake) {
		reply, wakes = room.Release(r, ref, now)
		return wakes
	})
	return answer(reply, err)
}

// Break forcibly ends the lease or ticket id, and reports the reason to its owner: 1 to
// 256 bytes of UTF-8 without control characters. It answers Released, Left, or Gone if id
// does not exist. See [driver.Breaker].
func (s *Driver) Break(ctx context.Context, key, id, reason string) (reply driver.Reply, err error) {
	err = s.update(ctx, key, "", func(r *room.Record, now int64) (wakes []room.Wake) {
		reply, wakes = room.Break(r, s.config.prefix+key, id, reason, now)
		return wakes
	})
	return answer(reply, err)
}

// Inspect returns one consistent picture of a lock: its holders and waiters. A free lock is
// not an error. See [driver.Inspector].
func (s *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.picture(ctx, key, room.Look)
}

// Glance returns the picture of Inspect without the waiters. It reads the whole record
// nevertheless. See [driver.Glancer].
func (s *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.picture(ctx, key, room.Glance)
}

func (s *Driver) picture(ctx context.Context, key string, see func(*room.Record, string, int64) driver.Snapshot) (snap driver.Snapshot, err error) {
	err = s.update(ctx, key, "", func(r *room.Record, now int64) []room.Wake {
		snap = see(r, key, now)
		return nil
	})
	if err != nil {
		return driver.Snapshot{}, err
	}
	return snap, nil
}

// Close ends the subscriptions and waits for the store's goroutines. Calls that wait for a
// file lock end at once, and later calls fail with [driver.ErrClosed]; leases stay valid.
// A wait in the system for the file lock of a stopped process ends only with that
// process. Close may be called again.
func (s *Driver) Close() error {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return nil
	}
	s.done = true
	s.mu.Unlock()
	s.closeIdleFiles() // while locks can still be had
	s.mu.Lock()
	close(s.closed)
	mail := s.mail
	s.mu.Unlock()
	s.subs.Close()
	s.work.Wait()
	var err error
	if mail != nil {
		err = mail.close()
	}
	for _, sh := range s.shards {
		err = oneline.Join(err, sh.tree.close())
	}
	return oneline.Join(err, s.alive.Unlock(), s.tree.close())
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

// answer returns reply if err is nil: a step that was not written was not taken.
func answer(reply driver.Reply, err error) (driver.Reply, error) {
	if err != nil {
		return driver.Reply{}, err
	}
	return reply, nil
}

// step is one call of package room on a record.
type step func(r *room.Record, now int64) []room.Wake

// update takes a step on the record of key under its lock, and then delivers the hints.
// once is the single-use id whose state the step needs, or "".
func (s *Driver) update(ctx context.Context, key, once string, step step) error {
	defer s.tick(1)
	key = s.config.prefix + key
	name := fileName(key)
	sh := s.shardOf(name)
	if err := sh.lock.lock(ctx, s.config.timeout); err != nil {
		return err
	}
	wakes, err := s.apply(ctx, sh, name, key, once, step)
	sh.lock.unlock()
	s.deliver(wakes)
	return err
}

// apply takes one step on a record while its shard is locked. The file always holds the
// old record or the new one. The state of the single-use id is written before the record:
// if the process dies in between, the id is spent although it was not released.
func (s *Driver) apply(ctx context.Context, sh *shard, name, key, once string, step step) ([]room.Wake, error) {
	if err := check.Key(key[len(s.config.prefix):]); err != nil {
		return nil, err
	}
	before, err := sh.load(name, key)
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
		memory, err = sh.loadUsedIDs(name, once, &after)
		defer memory.close()
		if err != nil {
			return nil, err
		}
	}
	wakes := step(&after, now)
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
	if err := sh.save(name, key, &after, &before.slots, now, s.keepIdleFile); err != nil {
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
