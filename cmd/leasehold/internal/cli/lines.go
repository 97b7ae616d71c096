package cli

import (
	"io"
	"slices"
	"sync"
	"time"
)

// maxLines bounds the messages of a command that wait to be written in the background, and
// maxRecords the records of the log of a service.
const (
	maxLines   = 100
	maxRecords = 1024
)

// lines writes to w, one line after another, in a goroutine that exists while lines are
// waiting. It is safe for concurrent use.
type lines struct {
	w    io.Writer
	max  int               // of waiting lines; beyond it the oldest of them is dropped
	note func(dropped int) // writes to w that lines were dropped; may be nil

	mu      sync.Mutex
	waiting []*pendingLine // the first is being written
	dropped int            // since the last note
}

// pendingLine is a line that is not yet written.
type pendingLine struct {
	text     string
	optional bool          // it may be dropped
	written  chan struct{} // closed after the write
}

// now writes a line, after all earlier lines, and waits until it is written.
func (l *lines) now(text string) { <-l.add(text, false) }

// soon is now, but waits for at most a second: readers should see the lines in order, but a
// lock is held during the wait.
func (l *lines) soon(text string) {
	select {
	case <-l.add(text, false):
	case <-time.After(time.Second):
	}
}

// later writes a line in the background: a pipe stays full until its reader reads, and the
// goroutines that keep leases alive must not wait for that.
func (l *lines) later(text string) { l.add(text, true) }

// Write implements [io.Writer] by later, for a logger.
func (l *lines) Write(record []byte) (int, error) {
	l.later(string(record))
	return len(record), nil
}

// flush waits until all earlier lines are written.
func (l *lines) flush() { l.now("") }

// add appends a line, and returns the channel that is closed after it is written.
func (l *lines) add(text string, optional bool) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > l.max && text != "" {
		rest := l.waiting[1:]
		if i := slices.IndexFunc(rest, func(p *pendingLine) bool { return p.optional }); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i+1, i+2)
			l.dropped++
		}
	}
	line := &pendingLine{text, optional, make(chan struct{})}
	if l.waiting = append(l.waiting, line); len(l.waiting) == 1 {
		go l.write()
	}
	return line.written
}

// write writes until no line is waiting.
func (l *lines) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 {
		line := l.waiting[0]
		l.mu.Unlock()
		if line.text != "" {
			_, _ = io.WriteString(l.w, line.text) // there is nowhere to report an error
		}
		close(line.written)
		l.mu.Lock()
		if n := l.dropped; n > 0 && l.note != nil {
			l.dropped = 0
			l.mu.Unlock()
			l.note(n)
			l.mu.Lock()
		}
		l.waiting = l.waiting[1:]
	}
}
