// Package filedriver keeps locks in a directory of one machine. Any number of
// processes share it: it needs no server, and is the embedded default of the
// command.
//
// A room is one small file, replaced as a whole under a file lock; the rule is
// package internal/room. A process that dies at any instant leaves a readable
// record, and its leases end in time. The clock is the machine's time since
// boot, which all processes share and nobody can set, so that steps of the wall
// clock change nothing; leases of an earlier boot are over. Waiters are woken
// by file notifications, and by polling where there are none.
//
// The directory must lie on a file system of the machine itself. Boots, clocks
// and locks of several machines have nothing in common: network file systems
// are refused as well as they can be told. Containers of one kernel can share a
// directory if they see one boot id (/proc/sys/kernel/random/boot_id).
//
// Records lie in 64 shards, each under one file lock, which a call holds for
// microseconds. A process that is stopped in them, by a signal, a debugger or a
// frozen container, holds up all calls about the shard: they fail after
// [WithTimeout] with [driver.ErrUnavailable], and a lease of the shard that ends
// before the process goes on is lost, as its holder is told in time. Where processes
// are stopped often, give leases that are longer than the stops.
//
// The directory is for locks alone: one that holds other things, or that belongs
// to another user and is not shared by [WithMode], is refused. No symbolic link
// in it is followed.
package filedriver

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Driver is a directory of rooms. It is safe for concurrent use, and any number
// of Drivers, in one process or in many, may share a directory.
type Driver struct {
	dir     string
	config  config
	machine machine
	clock   *clock
	alive   *flock.Flock // held shared for the life of the Driver
	shards  [shards]*shard
	mailing *fileLock

	calls   atomic.Int64 // since the last sweep
	pace    atomic.Int64 // calls between sweeps
	sweeps  atomic.Bool  // a sweep is under way
	settled atomic.Bool  // nothing of earlier boots is left

	closed chan struct{}
	work   sync.WaitGroup

	leavings leavings

	making sync.Mutex // held while the mailbox is made

	mu   sync.Mutex
	done bool
	mail *mailbox // nil before the first Watch
	subs map[string]*subscription
	nsub int
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil)
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
	_ driver.Marker  = (*Driver)(nil)
)

// Open opens the store in a directory, which is created if need be. It is named by its
// path, or by a URL:
//
//	/var/lib/leasehold
//	file:///var/lib/leasehold?timeout=500ms
//	file:locks                             relative to the working directory
//
// Parameters of a URL are prefix, timeout (as 2s) and mode (octal, as 0770); where
// options say something else, options count. A path that begins with "file:", or has
// "://" in it, is written with "./" before it.
//
// The error matches [driver.ErrInvalid] if the URL or an option is wrong or the file
// system is known not to do, and [driver.ErrUnavailable] if the directory cannot be
// used as it is: not writable, locks without effect, or in use by another machine.
func Open(location string, options ...Option) (*Driver, error) {
	dir, stated, err := located(location)
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
		dir: dir, config: c, machine: c.machine,
		closed: make(chan struct{}), subs: make(map[string]*subscription),
	}
	s.pace.Store(1)
	if err := s.prepare(); err != nil {
		return nil, err
	}
	return s, nil
}

// Acquire implements [driver.Driver]. An error always means that the request
// had no effect.
func (s *Driver) Acquire(ctx context.Context, req driver.Request) (reply driver.Reply, err error) {
	once := ""
	if req.SingleUseID {
		once = req.ID
	}
	e := s.do(ctx, req.Key, once, func(r *room.Record, now int64) (wakes []room.Wake) {
		req.Guard = req.Guard && r.Token == 0 && !s.clock.marked(now)
		reply, wakes, err = room.Acquire(r, req, now)
		return wakes
	})
	if e != nil {
		return driver.Reply{}, e
	}
	return reply, err
}

// Release implements [driver.Driver].
func (s *Driver) Release(ctx context.Context, ref driver.Ref) (reply driver.Reply, err error) {
	once := ""
	if ref.SingleUseID && ref.RejectIDFor > 0 {
		once = ref.ID
	}
	err = s.do(ctx, ref.Key, once, func(r *room.Record, now int64) (wakes []room.Wake) {
		reply, wakes = room.Release(r, ref, now)
		return wakes
	})
	return answer(reply, err)
}

// Break implements [driver.Breaker].
func (s *Driver) Break(ctx context.Context, key, id, reason string) (reply driver.Reply, err error) {
	err = s.do(ctx, key, "", func(r *room.Record, now int64) (wakes []room.Wake) {
		reply, wakes = room.Break(r, id, reason, now)
		return wakes
	})
	return answer(reply, err)
}

// Inspect implements [driver.Inspector].
func (s *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.picture(ctx, key, room.Look)
}

// Glance implements [driver.Glancer]. The tickets are read with the record, and
// not looked at.
func (s *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.picture(ctx, key, room.Glance)
}

func (s *Driver) picture(ctx context.Context, key string, see func(*room.Record, string, int64) driver.Snapshot) (snap driver.Snapshot, err error) {
	err = s.do(ctx, key, "", func(r *room.Record, now int64) []room.Wake {
		snap = see(r, key, now)
		return nil
	})
	if err != nil {
		return driver.Snapshot{}, err
	}
	return snap, nil
}

// Close ends the store: later calls fail with [driver.ErrClosed], waits for a
// file lock end at once, hints end. It waits for what the store started, except
// for a lock that a stopped process holds: that wait ends with the process's.
func (s *Driver) Close() error {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return nil
	}
	s.done = true
	s.mu.Unlock()
	s.endLingering() // while locks can still be had
	s.mu.Lock()
	close(s.closed)
	for _, sub := range slices.Collect(maps.Values(s.subs)) {
		sub.end()
	}
	mail := s.mail
	s.mu.Unlock()
	s.work.Wait()
	var err error
	if mail != nil {
		err = mail.close()
	}
	return oneline.Join(err, s.alive.Unlock())
}

// start runs f in a goroutine that Close waits for.
func (s *Driver) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return false
	}
	s.work.Go(f)
	return true
}

// answer is reply if err is nil: a step that could not be saved was not taken.
func answer(reply driver.Reply, err error) (driver.Reply, error) {
	if err != nil {
		return driver.Reply{}, err
	}
	return reply, nil
}

// step is one call of package room.
type step func(r *room.Record, now int64) []room.Wake

// do runs step on the room of key under its lock, and delivers the hints
// afterwards. once is the id of which the step needs to know whether it was
// released, if any.
func (s *Driver) do(ctx context.Context, key, once string, step step) error {
	defer s.tick(1)
	key = s.config.prefix + key
	name := fileName(key)
	sh := s.shardOf(name)
	if err := sh.lock.lock(ctx, s.config.timeout); err != nil {
		return err
	}
	wakes, err := s.take(ctx, sh, name, key, once, step)
	sh.lock.unlock()
	s.deliver(wakes)
	return err
}

// take takes one step on a record while its shard is locked. The record on
// disk is the old one or the new one, whatever happens. What is remembered of the
// id once is written before the record: who releases it has done with it.
func (s *Driver) take(ctx context.Context, sh *shard, name, key, once string, step step) ([]room.Wake, error) {
	if !utf8.ValidString(key) {
		return nil, fmt.Errorf("key %q is not UTF-8: %w", key, driver.ErrInvalid)
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
	var memory *ids
	if once != "" {
		memory, err = sh.recall(name, once, &after)
		defer memory.close()
		if err != nil {
			return nil, err
		}
	}
	wakes := step(&after, now)
	if err := s.clock.cover(ctx, after.Token); err != nil {
		return nil, err
	}
	if memory != nil {
		if err := memory.keep(&after, now/1000); err != nil {
			return nil, err
		}
	}
	if err := sh.save(name, key, &after, &before.slots, now, s.leave); err != nil {
		return nil, err
	}
	return wakes, nil
}

// unavailable is the error of a call that had no effect.
func unavailable(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, driver.ErrUnavailable, err)
}

// bounded limits how long opening and watching wait for a file lock.
func (s *Driver) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.config.timeout+time.Second)
}
