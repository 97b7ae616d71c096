package filedriver

import (
	"context"
	"sync"
	"time"
)

// An idle room needs no file, but making a file costs more than all the rest of
// an acquisition. So the file of a room that has just become idle lingers, for
// whoever takes the same lock again and again. The Driver that released the room
// removes the file a moment later, or when it is closed; if its process is
// killed first, a sweep does.
const (
	linger    = time.Second
	lingering = 128 // files per Driver; those of further rooms go at once
)

// leavings are the files that this Driver has to remove.
type leavings struct {
	mu      sync.Mutex
	names   map[string]bool
	removes bool // a goroutine is at it
	over    bool // no more are taken
}

// leave reports whether the file may linger. The caller holds its shard.
func (s *Driver) leave(name string) bool {
	l := &s.leavings
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	if l.names[name] {
		return true
	}
	if len(l.names) >= lingering || !l.removes && !s.start(s.removeLeavings) {
		return false
	}
	l.removes = true
	if l.names == nil {
		l.names = make(map[string]bool)
	}
	l.names[name] = true
	return true
}

// removeLeavings runs until nothing is left.
func (s *Driver) removeLeavings() {
	for {
		select {
		case <-s.closed:
			return
		case <-time.After(linger):
		}
		if !s.removeLingering() {
			return
		}
	}
}

// removeLingering removes the files that lingered, and reports whether there
// were any.
func (s *Driver) removeLingering() bool {
	l := &s.leavings
	l.mu.Lock()
	names := l.names
	l.names = nil
	l.removes = len(names) > 0
	l.mu.Unlock()
	for name := range names {
		// A room that is in use again stays; one that cannot be looked at
		// now is left to a sweep.
		_, _ = s.visit(context.Background(), s.shardOf(name), []string{name}, hurry, nil)
	}
	return len(names) > 0
}

// endLingering removes what lingers and lets nothing linger any more.
func (s *Driver) endLingering() {
	s.leavings.mu.Lock()
	s.leavings.over = true
	s.leavings.mu.Unlock()
	s.removeLingering()
}
