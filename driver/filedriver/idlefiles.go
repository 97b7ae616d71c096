package filedriver

import (
	"context"
	"sync"
	"time"
)

// An idle lock needs no file, but making a file costs more than the rest of an
// acquisition. So the Driver that released a lock keeps the file for a moment, for callers
// that take the same lock again and again. It removes the file later, or when it is closed;
// if its process is killed first, a sweep removes it.
const (
	idleLife     = time.Second
	maxIdleFiles = 128 // per Driver; files of further locks are removed at once
)

// idleFiles are the files of idle locks that this Driver has to remove.
type idleFiles struct {
	mu      sync.Mutex
	names   map[string]bool
	running bool // removeIdleLoop runs
	closed  bool // no further files are kept
}

// keepIdleFile reports whether the file of an idle lock may stay for now, and has it removed
// later.
func (s *Driver) keepIdleFile(name string) bool {
	l := &s.idleFiles
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.names[name] {
		return true
	}
	if len(l.names) >= maxIdleFiles || !l.running && !s.start(s.removeIdleLoop) {
		return false
	}
	l.running = true
	if l.names == nil {
		l.names = make(map[string]bool)
	}
	l.names[name] = true
	return true
}

// removeIdleLoop removes all idle files.
func (s *Driver) removeIdleLoop() {
	for {
		select {
		case <-s.closed:
			return
		case <-time.After(idleLife):
		}
		if !s.removeIdleFiles() {
			return
		}
	}
}

// removeIdleFiles removes idle files, and reports whether there were any.
func (s *Driver) removeIdleFiles() bool {
	l := &s.idleFiles
	l.mu.Lock()
	names := l.names
	l.names = nil
	l.running = len(names) > 0
	l.mu.Unlock()
	for name := range names {
		// A file in use again stays.
		if _, err := s.examine(context.Background(), s.shardOf(name), []string{name}, briefTimeout, nil); err != nil {
			s.keepIdleFile(name) // its shard is taken: until the next round, or for a sweep
		}
	}
	return len(names) > 0
}

// closeIdleFiles removes the idle files; later files are removed at once.
func (s *Driver) closeIdleFiles() {
	s.idleFiles.mu.Lock()
	s.idleFiles.closed = true
	s.idleFiles.mu.Unlock()
	s.removeIdleFiles()
}
