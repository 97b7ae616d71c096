package filedriver

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A release removes its own files. Sweeps remove the files of dead processes: records of
// holders that never released, mailboxes, and everything of earlier boots. Each sweep
// examines a bounded number of files during ordinary calls. The more files sweeps find, the
// more often they run.
const (
	sweepFiles       = 128  // files examined in one sweep
	sweepLock        = 16   // files examined under one locking of a shard
	maxSweepInterval = 4096 // calls between two sweeps that find no files
	minSweepInterval = 64   // calls between two sweeps that find much
)

// tick counts n calls, and starts a sweep in the background when it is due. The first
// call of a Driver starts one, so that short-lived processes contribute too.
func (s *Driver) tick(n int) {
	if s.calls.Add(int64(n)) < s.sweepInterval.Load() || !s.sweeping.CompareAndSwap(false, true) {
		return
	}
	started := s.start(func() {
		found := s.sweep()
		pace := min(2*max(s.sweepInterval.Load(), minSweepInterval), maxSweepInterval)
		if found > 0 {
			pace = minSweepInterval
		}
		s.sweepInterval.Store(pace)
		s.calls.Store(0)
		s.sweeping.Store(false)
	})
	if !started {
		s.sweeping.Store(false)
	}
}

// sweep examines up to sweepFiles files from a random place on, and returns how many
// files of dead processes it removed.
func (s *Driver) sweep() (removed int) {
	removed = s.sweepBoots() + s.sweepMailboxes()
	budget := sweepFiles
	first := rand.IntN(shards)
	for i := range shards {
		sh := s.shards[(first+i)%shards]
		names := sh.names()
		if len(names) > budget {
			from := rand.IntN(len(names))
			names = append(names[from:], names[:from]...)[:budget]
		}
		budget -= len(names)
		n, err := s.examine(context.Background(), sh, names, s.config.timeout, nil)
		removed += n
		if err != nil || budget == 0 {
			break
		}
	}
	return removed
}

// names lists the files of the shard in lexical order.
func (sh *shard) names() []string {
	d, err := sh.tree.openFile(".", os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return !isOurName(name) && name != draft })
	slices.Sort(names)
	return names
}

// examine removes the named files that have expired, and passes the rest to f, if it is
// not nil. A record that cannot be read is passed as nil. It returns how many files of
// dead processes it removed, which no other code would have removed.
func (s *Driver) examine(ctx context.Context, sh *shard, names []string, patience time.Duration, f func(name string, rec *record)) (removed int, err error) {
	for chunk := range slices.Chunk(names, sweepLock) {
		if err := sh.lock.lock(ctx, patience); err != nil {
			return removed, err
		}
		now, err := s.clock.now(ctx)
		if err != nil {
			sh.lock.unlock()
			return removed, err
		}
		for _, name := range chunk {
			rec, over := sh.examineFile(name, now)
			switch {
			case !over && f != nil:
				f(name, rec)
			case over && sh.remove(name) == nil && rec != nil && rec.room.Until() > 0:
				removed++
			}
		}
		sh.lock.unlock()
	}
	return removed, nil
}

// examineFile reads a file, and reports whether it may be removed. A record may be removed
// if the lock is free, without waiters, and the clock has passed its token; a table of ids
// if all of them have expired.
func (sh *shard) examineFile(name string, now int64) (rec *record, over bool) {
	if name == draft {
		return nil, true // a writer died: this process has the lock
	}
	if strings.HasSuffix(name, idsSuffix) {
		return nil, sh.allExpired(name, now/1000)
	}
	f, err := sh.tree.openFile(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	if err != nil {
		return nil, false
	}
	defer f.Close()
	found, err := read(f)
	if err != nil || fileName(found.key) != name {
		return nil, false
	}
	return &found, found.room.Until() <= now/1000 && found.room.Token < now
}

// sweepBoots removes records of earlier boots.
func (s *Driver) sweepBoots() (removed int) {
	if s.bootsSwept.Load() {
		return 0
	}
	left := false
	boots, _ := s.tree.entries("rooms")
	for _, boot := range boots {
		if boot.Name() == s.bootDir() || !boot.IsDir() {
			continue
		}
		left = true
		removed += s.tree.removeSome(filepath.Join("rooms", boot.Name()), sweepFiles-removed)
	}
	s.bootsSwept.Store(!left || removed == 0)
	return removed
}

// removeSome removes up to n of the records below dir, and directories that are then
// empty.
func (t *tree) removeSome(dir string, n int) (removed int) {
	entries, _ := t.entries(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case removed >= n:
			return removed
		case e.IsDir():
			removed += t.removeSome(name, n-removed)
		case (isOurName(e.Name()) || e.Name() == draft) && t.remove(name) == nil:
			removed++
		}
	}
	_ = t.remove(dir) // fails if the directory is not empty
	return removed
}
