package filedriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
// the gate first.
type fileLock struct {
	gate   chan struct{}
	file   *flock.Flock
	closed <-chan struct{}
}

func (s *Store) newLock(name string) *fileLock {
	path := s.path("locks", name)
	return &fileLock{
		gate:   make(chan struct{}, 1),
		file:   flock.New(path, flock.SetPermissions(s.config.mode&0o666)),
		closed: s.closed,
	}
}

// Pauses between tries. The lock is usually free after some 50 µs; a stopped
// process may hold it for hours. A blocking flock would wake sooner, but cannot
// be called off: it would outlive the call that wanted it.
const (
	firstPause = 50 * time.Microsecond
	lastPause  = 2 * time.Millisecond
)

// lock waits until the lock is ours, ctx is done, patience is over or the
// store is closed. An error matches ErrUnavailable or ErrClosed.
func (l *fileLock) lock(ctx context.Context, patience time.Duration) error {
	if err := ctx.Err(); err != nil {
		return unavailable("file lock "+l.file.Path(), err)
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-l.closed:
		return driver.ErrClosed
	default:
	}
	select {
	case l.gate <- struct{}{}:
	case <-l.closed:
		return driver.ErrClosed
	case <-ctx.Done():
		return l.stuck(ctx.Err())
	case <-limit.C:
		return l.stuck(fmt.Errorf("waited %v", patience))
	}
	if err := l.lockFile(ctx, limit.C, patience); err != nil {
		<-l.gate
		return err
	}
	return nil
}

func (l *fileLock) lockFile(ctx context.Context, limit <-chan time.Time, patience time.Duration) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		ok, err := l.file.TryLock()
		if err != nil {
			return unavailable("file lock", err)
		}
		if ok {
			return nil
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-l.closed:
			return driver.ErrClosed
		case <-ctx.Done():
			return l.stuck(ctx.Err())
		case <-limit:
			return l.stuck(fmt.Errorf("waited %v", patience))
		}
	}
}

func (l *fileLock) unlock() {
	// Closing the file unlocks it too, so a failed unlock is none.
	_ = l.file.Unlock()
	<-l.gate
}

func (l *fileLock) stuck(err error) error {
	return fmt.Errorf("%w: %w: %s: %w (if it stays so, a stopped process holds it; fuser or lslocks tells which)",
		driver.ErrUnavailable, errStuck, l.file.Path(), err)
}
