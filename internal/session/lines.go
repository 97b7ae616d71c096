package session

import (
	"container/list"
	"sync"
)

// lines holds the waiters of one process by key, in the order of their arrival. It is
// safe for concurrent use.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*list.List
}

// place is a waiter's element in its line.
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

// leave removes a waiter from its line. If it was the first, leave returns the new first
// waiter, or nil.
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
