package session

import (
	"container/list"
	"sync"
)

// Lines are the waiters of one process, by the locks that they wait for, in the
// order in which they came. They are safe for concurrent use.
type Lines[W any] struct {
	mu    sync.Mutex
	byKey map[string]*list.List
}

// Place is that of a waiter in its line.
type Place *list.Element

// Join puts w at the end of the line for a lock.
func (l *Lines[W]) Join(key string, w W) Place {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = make(map[string]*list.List)
	}
	line := l.byKey[key]
	if line == nil {
		line = list.New()
		l.byKey[key] = line
	}
	return line.PushBack(w)
}

// Leave takes a waiter out of its line. If it was the first, next is who is it
// now.
func (l *Lines[W]) Leave(key string, p Place) (next W, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.byKey[key]
	first := line.Front() == p
	line.Remove(p)
	switch now := line.Front(); {
	case now == nil:
		delete(l.byKey, key)
	case first:
		return now.Value.(W), true
	}
	return next, false
}

// First reports whether a waiter is the first of its line.
func (l *Lines[W]) First(key string, p Place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.byKey[key]
	return line != nil && line.Front() == p
}
