package cli

import (
	"io"
	"slices"
	"sync"
	"time"
)

// maxLines bounds the lines that wait to be written and that nobody waits for. Beyond it
// the oldest is lost.
const maxLines = 100

// lines writes to w, one line after another, in a goroutine that exists while there are
// some. It is safe for concurrent use.
type lines struct {
	w io.Writer

	mu      sync.Mutex
	waiting []*pendingLine // the first is being written
}

// pendingLine is a line that is to be written.
type pendingLine struct {
	text    string
	written chan struct{} // closed then; nil if nobody waits
}

// now writes a line, behind those before it.
func (l *lines) now(text string) {
	written := make(chan struct{})
	l.add(&pendingLine{text, written})
	<-written
}

// soon is now, but goes on after a second: what is to be read may stand in the order in which it
// happens, but a lock is held meanwhile.
func (l *lines) soon(text string) {
	written := make(chan struct{})
	l.add(&pendingLine{text, written})
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}

// later writes a line in the background: a pipe may be full for as long as its reader
// likes, and what keeps leases alive must not wait for that.
func (l *lines) later(text string) { l.add(&pendingLine{text, nil}) }

// flush waits until every line before it is written.
func (l *lines) flush() { l.now("") }

func (l *lines) add(line *pendingLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > maxLines {
		rest := l.waiting[1:]
		if i := slices.IndexFunc(rest, func(p *pendingLine) bool { return p.written == nil }); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i+1, i+2)
		}
	}
	if l.waiting = append(l.waiting, line); len(l.waiting) == 1 {
		go l.write()
	}
}

// write writes until there is nothing more to be written.
func (l *lines) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 {
		line := l.waiting[0]
		l.mu.Unlock()
		if line.text != "" {
			_, _ = io.WriteString(l.w, line.text) // an error has no other place to be told
		}
		if line.written != nil {
			close(line.written)
		}
		l.mu.Lock()
		l.waiting = l.waiting[1:]
	}
}
