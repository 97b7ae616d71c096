// Package leaseholdaudit writes an audit trail of the locks of a client as lines of JSON: the
// holder of each lease, its beginning and its end with the reason.
//
//	{"time":"2026-01-02T03:04:05.678Z","event":"granted","key":"orders/42","mode":"exclusive","lease":"…","owner":"worker-7:4711","token":1767323045678001,"waitedMs":12}
//	{"time":"2026-01-02T03:04:06.789Z","event":"ended","key":"orders/42","mode":"exclusive","lease":"…","owner":"worker-7:4711","token":1767323045678001,"heldMs":1111,"reason":"released"}
//
// An event is granted, ended, detached (the lease goes on without this process), or unreleased:
// the store has not confirmed a release. [leasehold.EndedInfo.Reason] lists the reasons of an
// end. The reason of unreleased is "lost" if the store no longer had the lease, which may be
// discovered only then, or another outcome of [leasehold.ReleasedInfo.Outcome]: then the lock
// stays closed until the lease expires. Times are of the clock of this process.
package leaseholdaudit

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/audit"
)

// New returns an observer that writes a line to w for each lease that is granted or ends,
// by one call of Write at a time. Locks wait for that call: w must be quick, as a file is.
//
// A line that cannot be written is lost. failed is called with the first error of a
// series, and with nil when lines can be written again; it may be nil.
func New(w io.Writer, failed func(error)) leasehold.Observer {
	log := audit.New(w, failed)
	return leasehold.Observer{
		Acquired: func(ctx context.Context, e leasehold.AcquiredInfo) context.Context {
			if e.Err == nil {
				line := about(audit.Granted, &e.LockInfo, e.ID)
				line.Token, line.Waited = e.Token, e.Waited.Milliseconds()
				log.Write(line)
			}
			return ctx
		},
		Ended: func(_ context.Context, e leasehold.EndedInfo) {
			line := about(audit.Ended, &e.LockInfo, e.ID)
			line.Token, line.Held, line.Reason = e.Token, max(e.Held.Milliseconds(), 1), e.Reason()
			if line.Reason == audit.Detached {
				line.Event, line.Reason = audit.Detached, ""
			} else if e.Cause != nil && line.Reason != "released" {
				line.Detail = e.Cause.Error()
			}
			log.Write(line)
		},
		Released: func(_ context.Context, e leasehold.ReleasedInfo) {
			if e.Err == nil {
				return
			}
			line := about(audit.Unreleased, &e.LockInfo, e.ID)
			line.Reason, line.Detail = e.Outcome(), e.Err.Error()
			log.Write(line)
		},
	}
}

// about returns a line about a lease.
func about(event string, lock *leasehold.LockInfo, id string) *audit.Line {
	line := &audit.Line{Time: time.Now(), Event: event, Key: lock.Key, Mode: "exclusive", Lease: id, Owner: lock.Owner}
	if lock.Mode == leasehold.Shared {
		line.Mode = "shared"
	}
	if lock.Limit > 0 {
		line.Limit, line.Weight = lock.Limit, lock.Weight
	}
	return line
}

// File is a file that is appended to, for [New]. It is safe for concurrent use.
type File struct {
	name string

	mu   sync.Mutex
	file *os.File
}

// Open opens a file to append to. It is made if it is not there, for its user and group.
func Open(name string) (*File, error) {
	file, err := appendTo(name)
	if err != nil {
		return nil, err
	}
	return &File{name: name, file: file}, nil
}

func appendTo(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
}

// Write appends to the file.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(p)
}

// Reopen opens the file again by its name, after log rotation has renamed it. If it fails, the
// old file stays open.
func (f *File) Reopen() error {
	next, err := appendTo(f.name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	before := f.file
	f.file = next
	f.mu.Unlock()
	return before.Close()
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
