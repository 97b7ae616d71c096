package session

import (
	"container/list"
	"sync"
)

// lines are the waiters of one process, by the locks that they wait for, in the
// order in which they came. They are safe for concurrent use.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*list.List
}

// place is that of a waiter in its line.
type place *list.Element

// join puts w at the end of the line for a lock.
func (l *lines) join(key string, w *Waiter) place {
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

// leave takes a waiter out of its line. If it was the first, next is who is it
// now; else nil.
func (l *lines) leave(key string, p place) (next *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.byKey[key]
	first := line.Front() == p
	line.Remove(p)
	switch now := line.Front(); {
	case now == nil:
		delete(l.byKey, key)
	case first:
		return now.Value.(*Waiter)
	}
	return nil
}

// first reports whether a waiter is the first of its line.
func (l *lines) first(key string, p place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.byKey[key]
	return line != nil && line.Front() == p
}
