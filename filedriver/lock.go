package filedriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold-go/leasehold/driver"
)

// errStuck marks the error of a lock that stayed taken: its holder is slow, or
// was stopped.
var errStuck = errors.New("file lock is taken")

// fileLock is a mutex between processes. The file stays for ever: a lock file
// that may be removed can be locked twice, on the old inode and on the new.
//
// A file lock belongs to an open file, so goroutines of one process queue at
// the gate first. Who is through it waits for the file lock in the system. Such
// a wait cannot be called off, so a goroutine does it, at most one per lock: when
// its caller gives up, the next caller takes the wait over, and if there is none
// the lock is given back as soon as it is had.
type fileLock struct {
	gate   chan struct{}
	file   *flock.Flock
	closed <-chan struct{}
	lost   func() // called when the directory is gone

	freed time.Time // by whom has the gate
	since time.Time // when this process began to have the lock turn after turn

	mu      sync.Mutex
	pending chan error // what a goroutine that blocks will say, or nil
	wanted  bool       // somebody waits for it to say it
}

func (s *Driver) newLock(name string) *fileLock {
	path := s.path("locks", name)
	return &fileLock{
		gate:   make(chan struct{}, 1),
		file:   s.newFlock(path),
		closed: s.closed,
		lost:   s.restore,
	}
}

// lock waits until the lock is ours, ctx is done, patience is over or the
// store is closed. An error matches ErrUnavailable or ErrClosed.
func (l *fileLock) lock(ctx context.Context, patience time.Duration) error {
	if err := ctx.Err(); err != nil {
		return unavailable("file lock "+l.file.Path(), err)
	}
	select {
	case <-l.closed:
		return driver.ErrClosed
	default:
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case l.gate <- struct{}{}:
	case <-l.closed:
		return driver.ErrClosed
	case <-ctx.Done():
		return l.stuck(ctx.Err())
	case <-limit.C:
		return l.stuck(fmt.Errorf("waited %v", patience))
	}
	l.yield()
	got := l.try()
	if got == nil {
		return nil
	}
	var err error
	select {
	case err = <-got:
		if err == nil {
			return nil
		}
		err = unavailable("file lock", err)
	case <-l.closed:
		err = driver.ErrClosed
	case <-ctx.Done():
		err = l.stuck(ctx.Err())
	case <-limit.C:
		err = l.stuck(fmt.Errorf("waited %v", patience))
	}
	l.giveUp(got)
	<-l.gate
	return err
}

// A process whose goroutines take the lock in a row would never let another in,
// which takes longer to wake up than the lock stays free.
const (
	turn  = 5 * time.Millisecond
	pause = 150 * time.Microsecond
)

// yield leaves the lock free for a pause when it has been ours for a turn. The
// caller has the gate.
func (l *fileLock) yield() {
	switch now := time.Now(); {
	case now.Sub(l.freed) > pause:
		l.since = now
	case now.Sub(l.since) > turn:
		time.Sleep(pause)
		l.since = now.Add(pause)
	}
}

// try returns nil if the lock is ours, or else where to hear that it is, or
// why it cannot be had.
func (l *fileLock) try() chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	if l.pending != nil {
		return l.pending
	}
	ok, err := l.file.TryLock()
	if errors.Is(err, fs.ErrNotExist) {
		l.lost()
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

// block waits for the file lock, and gives it back if nobody wants it any more.
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

// giveUp tells that the caller behind the gate waits no longer. If the lock
// was had at this very moment, it is given back.
func (l *fileLock) giveUp(got chan error) {
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
	// Closing the file unlocks it too, so a failed unlock is none.
	_ = l.file.Unlock()
	l.freed = time.Now()
	<-l.gate
}

func (l *fileLock) stuck(err error) error {
	return fmt.Errorf("%w: %w: %s: %w (if it stays so, a stopped process holds it; fuser or lslocks tells which)",
		driver.ErrUnavailable, errStuck, l.file.Path(), err)
}
