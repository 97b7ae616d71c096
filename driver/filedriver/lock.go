package filedriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
)

// errTaken is the error of a lock that stayed taken: its holder is slow, or was stopped.
var errTaken = errors.New("file lock is taken")

// fileLock is a mutex between processes. Its file is never removed: processes could
// otherwise lock the old and a new inode at the same time.
//
// A file lock belongs to an open file, so goroutines of one process queue at the gate
// first. The first goroutine then waits for the file lock in the system. This wait cannot
// be cancelled, so a separate goroutine does it, at most one per lock. If its caller gives
// up, the next caller takes the wait over; without one, the goroutine unlocks the file as
// soon as it has the lock.
type fileLock struct {
	gate   chan struct{} // empty while a goroutine of this process is at the file lock
	name   string        // of the file
	file   *flock.Flock
	closed <-chan struct{}
	onLost func() // called when the directory is gone

	lastUnlock time.Time // guarded by the gate
	turnBegan  time.Time // when this process began to have the lock turn after turn

	mu      sync.Mutex
	pending chan error // delivers the result of block; nil if it does not run
	wanted  bool       // a caller waits for pending
}

func (s *Driver) newLock(name string) *fileLock {
	name = filepath.Join("locks", name)
	l := &fileLock{
		gate:   make(chan struct{}, 1),
		name:   name,
		file:   s.tree.newFlock(name),
		closed: s.closed,
		onLost: s.restore,
	}
	l.gate <- struct{}{}
	return l
}

// lock waits until it has the lock, ctx is done, patience is over or the store is closed.
// The error matches ErrUnavailable or ErrClosed.
func (l *fileLock) lock(ctx context.Context, patience time.Duration) error {
	if err := ctx.Err(); err != nil {
		return unavailable("file lock "+l.file.Path(), err)
	}
	select {
	case <-l.closed:
		return driver.ErrClosed
	default:
	}
	end := time.Now().Add(patience)
	select {
	case <-l.gate:
	default:
		if _, err := waitFor(ctx, l, patience, patience, l.gate); err != nil {
			return err
		}
	}
	l.yield()
	got := l.try()
	if got == nil {
		return nil
	}
	failed, err := waitFor(ctx, l, patience, time.Until(end), got)
	switch {
	case err != nil:
	case failed == nil:
		return nil
	default:
		err = unavailable("file lock", failed)
	}
	l.abandon(got)
	l.gate <- struct{}{}
	return err
}

// waitFor waits until c delivers, for the part of the patience that is left.
func waitFor[T any](ctx context.Context, l *fileLock, patience, left time.Duration, c <-chan T) (value T, err error) {
	limit := time.NewTimer(left)
	defer limit.Stop()
	select {
	case value = <-c:
		return value, nil
	case <-l.closed:
		return value, driver.ErrClosed
	case <-ctx.Done():
		return value, l.errTakenBy(ctx.Err())
	case <-limit.C:
		return value, l.errTakenBy(fmt.Errorf("waited %v", patience))
	}
}

// A process whose goroutines take the lock in a row would starve the others, since waking
// up takes longer than the lock stays free.
const (
	maxTurn   = 5 * time.Millisecond
	turnPause = 150 * time.Microsecond
)

// yield leaves the lock free for a pause after this process has had it for a turn. The
// caller has the gate.
func (l *fileLock) yield() {
	switch now := time.Now(); {
	case now.Sub(l.lastUnlock) > turnPause:
		l.turnBegan = now
	case now.Sub(l.turnBegan) > maxTurn:
		time.Sleep(turnPause)
		l.turnBegan = now.Add(turnPause)
	}
}

// try returns nil if it has the lock. Otherwise it returns a channel that delivers nil
// with the lock, or the error.
func (l *fileLock) try() chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	if l.pending != nil {
		return l.pending
	}
	ok, err := l.file.TryLock()
	if errors.Is(err, fs.ErrNotExist) {
		l.onLost()
		ok, err = l.file.TryLock()
	}
	if ok {
		return nil
	}
	got := make(chan error, 1)
	if err != nil {
		got <- err
		return got
	}
	l.pending = got
	go l.block(got)
	return got
}

// block waits for the file lock, and unlocks it if all callers have given up.
func (l *fileLock) block(got chan error) {
	err := l.file.Lock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = nil
	if err == nil && !l.wanted {
		_ = l.file.Unlock()
		return
	}
	got <- err
}

// abandon ends a caller's wait. If the lock arrived at this very moment, it unlocks it.
func (l *fileLock) abandon(got chan error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = false
	select {
	case err := <-got:
		if err == nil {
			_ = l.file.Unlock()
		}
	default:
	}
}

func (l *fileLock) unlock() {
	// Closing the file unlocks it too, so a failed unlock does no harm.
	_ = l.file.Unlock()
	l.lastUnlock = time.Now()
	l.gate <- struct{}{}
}

func (l *fileLock) errTakenBy(err error) error {
	return fmt.Errorf("%w: %w: %s: %w (if this persists, a stopped process holds it; find it with fuser or lslocks)",
		driver.ErrUnavailable, errTaken, l.file.Path(), err)
}
