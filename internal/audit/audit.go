// Package audit writes an audit trail of locks: one line of JSON for each event.
package audit

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// The events.
const (
	Granted    = "granted"
	Ended      = "ended"
	Detached   = "detached"   // it goes on without this process
	Unreleased = "unreleased" // a release, or a break, that the store has not confirmed
)

// Line is one event. Empty fields are not written.
type Line struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Key   string    `json:"key"`
	Mode  string    `json:"mode,omitempty"` // exclusive or shared
	// Weight is the number of places of Limit.
	Limit  int    `json:"limit,omitempty"`
	Weight int    `json:"weight,omitempty"`
	Lease  string `json:"lease"`
	Owner  string `json:"owner,omitempty"`
	// Client is the principal that sent the request, By the one that broke the lease.
	Client string `json:"client,omitempty"`
	By     string `json:"by,omitempty"`
	Token  int64  `json:"token,omitempty"`
	Waited int64  `json:"waitedMs,omitempty"`
	Held   int64  `json:"heldMs,omitempty"`
	// Reason is a word for the cause of the end, Detail its text.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Log writes lines, each by one call of Write. It is safe for concurrent use.
type Log struct {
	failed func(error)

	mu      sync.Mutex
	w       io.Writer
	failing bool
	torn    bool // the last line has no end
}

// New returns a log. failed is called with the first error of a series, and with nil when
// a line has been written after it. It may be nil.
func New(w io.Writer, failed func(error)) *Log {
	if failed == nil {
		failed = func(error) {}
	}
	return &Log{w: w, failed: failed}
}

// Write writes a line. A line that cannot be written is lost: locks do not wait for
// their audit. One that is cut off, as on a full disk, does not spoil the next.
func (l *Log) Write(line *Line) {
	line.Time = line.Time.UTC()
	text, err := json.Marshal(line)
	if err != nil {
		return // strings, numbers and a time cannot fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text = append(text, '\n')
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.w.Write(text)
	l.torn = err != nil && (n > 0 || l.torn)
	if (err != nil) == l.failing {
		return
	}
	l.failing = err != nil
	l.failed(err)
}
