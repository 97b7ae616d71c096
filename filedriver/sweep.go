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

// What is released is cleared away by who released it. What is left to sweep is
// what died: records of holders that never released, mailboxes of killed processes, and
// everything of earlier boots. A bounded part is swept beside ordinary calls,
// the more often the more there is to find.
const (
	sweepFiles = 128  // files looked at in one sweep
	sweepLock  = 16   // files looked at under one locking of a shard
	slowest    = 4096 // calls between two sweeps that find nothing
	fastest    = 64   // calls between two sweeps that find much
)

// tick counts n calls, and starts a sweep in the background when it is time.
// The first call of a Driver does: a short-lived process contributes too.
func (s *Driver) tick(n int) {
	if s.calls.Add(int64(n)) < s.pace.Load() || !s.sweeps.CompareAndSwap(false, true) {
		return
	}
	started := s.start(func() {
		found := s.sweep()
		pace := min(2*max(s.pace.Load(), fastest), slowest)
		if found > 0 {
			pace = fastest
		}
		s.pace.Store(pace)
		s.calls.Store(0)
		s.sweeps.Store(false)
	})
	if !started {
		s.sweeps.Store(false)
	}
}

// sweep looks at up to sweepFiles records, from a random place on, and returns
// how many files it removed whose owners died.
func (s *Driver) sweep() (removed int) {
	removed = s.sweepBoots() + s.sweepMail()
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
		n, err := s.visit(context.Background(), sh, names, s.config.timeout, nil)
		removed += n
		if err != nil || budget == 0 {
			break
		}
	}
	return removed
}

// names lists the files of the shard, in lexical order.
func (sh *shard) names() []string {
	d, err := os.Open(sh.dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return !ours(name) && name != draft })
	slices.Sort(names)
	return names
}

// visit removes, of the files named, those that mean nothing any more, and
// shows the others to f, if it is not nil. A record that cannot be read is
// shown as nil. It returns how many it removed that nobody else would have:
// whose parties died.
func (s *Driver) visit(ctx context.Context, sh *shard, names []string, patience time.Duration, f func(name string, rec *record)) (removed int, err error) {
	for chunk := range slices.Chunk(names, sweepLock) {
		if err := sh.lock.lock(ctx, patience); err != nil {
			return removed, err
		}
		now := s.clock.read()
		for _, name := range chunk {
			rec, over := sh.look(name, now)
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

// look reads a record, and tells whether its file may go: for a record when
// nobody is in it, nobody waits, and the clock has passed its token; for ids when
// none counts any more.
func (sh *shard) look(name string, now int64) (rec *record, over bool) {
	if name == draft {
		return nil, true // a writer died: the lock is ours, so nobody writes
	}
	if strings.HasSuffix(name, idsSuffix) {
		return nil, sh.isOver(name, now/1000)
	}
	f, err := os.OpenFile(filepath.Join(sh.dir, name), os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	if err != nil {
		return nil, false
	}
	defer f.Close()
	_, found, err := read(f)
	if err != nil || fileName(found.key) != name {
		return nil, false
	}
	return &found, found.room.Until() <= now/1000 && found.room.Token < now
}

// sweepBoots removes records of earlier boots.
func (s *Driver) sweepBoots() (removed int) {
	if s.settled.Load() {
		return 0
	}
	left := false
	boots, _ := os.ReadDir(s.path("rooms"))
	for _, boot := range boots {
		if boot.Name() == s.bootDir() || !boot.IsDir() {
			continue
		}
		left = true
		removed += removeSome(s.path("rooms", boot.Name()), sweepFiles-removed)
	}
	s.settled.Store(!left || removed == 0)
	return removed
}

// removeSome removes up to n of the records below dir, and the directories that
// are empty then.
func removeSome(dir string, n int) (removed int) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case removed >= n:
			return removed
		case e.IsDir():
			removed += removeSome(path, n-removed)
		case (ours(e.Name()) || e.Name() == draft) && os.Remove(path) == nil:
			removed++
		}
	}
	_ = os.Remove(dir) // fails while something is in it
	return removed
}
