package leasehold

import (
	"context"
	"log/slog"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A lease is renewed for as long as the process lives, and a program may mean it.
// But one whose Lease and context nobody can reach any more cannot be released
// either, which is a mistake more often than not: it is told of, once, with where
// it was taken. It costs nothing without a logger, and next to nothing until a
// lease is renewed for the first time.

// callers are where a lock was taken: the innermost calls, of which some are the
// library's.
type callers [10]uintptr

// takenAt notes where the lock is being taken, if anybody is to be told.
func (c *config) takenAt() *callers {
	if c.NoRenewal || !c.Log.Enabled(context.Background(), slog.LevelWarn) {
		return nil
	}
	at := new(callers)
	runtime.Callers(4, at[:]) // without those that every lock has
	return at
}

// String returns the file and line of the caller of the library.
func (c *callers) String() string {
	frames := runtime.CallersFrames(c[:])
	for {
		frame, more := frames.Next()
		if frame.PC == 0 {
			return "unknown"
		}
		if !ours(frame.Function) {
			return path.Join(path.Base(path.Dir(frame.File)), path.Base(frame.File)) + ":" + strconv.Itoa(frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// ours reports whether a function is of this package.
func ours(function string) bool {
	return strings.HasPrefix(function, "github.com/leasehold-go/leasehold.")
}

// watch has the leases watched that were not yet.
func (h *hold) watch() {
	if h.taken == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.leases {
		if g.lease != nil {
			runtime.AddCleanup(g.lease, forgotten, g)
			g.lease = nil
		}
	}
}

// forgotten is called when nobody can reach the Lease of g any more.
func forgotten(g *share) {
	h := g.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Cause() != nil || h.told || !slices.Contains(h.leases, g) {
		return
	}
	h.told = true
	go h.cfg.Log.Warn("leasehold: lease is renewed, but nothing in the program can release it any more: its Lease and its context were dropped",
		"key", h.Key(), "lease", h.ID(), "token", h.Token(), "taken", h.taken.String()) // a logger may take its time
}
