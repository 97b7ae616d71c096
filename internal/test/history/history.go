// Package history records the actions and observations of the clients of a lock, and
// the faults of the clients and of their store.
//
// A history is a file of JSON lines that any number of processes append to. Each line is a
// [Record]. Their order in the file has no meaning, since each record has its time. All times
// are nanoseconds of one clock, the kernel's monotonic one, so that the records of processes on
// one machine are compared without synchronisation.
//
// Package [github.com/leasehold-go/leasehold/internal/test/checker] checks
// histories.
package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// Rules are the promises of the store under test, beyond the promises of every store.
type Rules struct {
	// Tokens: grants carry fencing tokens.
	Tokens bool
	// Queue: waiters are served in the order of their arrival.
	Queue bool
	// Prompt is how long a free lock may stay free, in ns, while an attempt
	// waits for it and there is no fault.
	Prompt int64
	// Steady: a lease is lost only because of a fault. It is false where
	// the machine may be too busy to renew in time.
	Steady bool
	// Quick: only the invariants are checked. The search for an order takes long for a crowd.
	Quick bool
}

// Kinds of records. Parentheses list the fields that are set besides At, Proc and What.
const (
	// Ask: an attempt begins: Lock or TryLock was called (Attempt, Key, Mode,
	// Weight, Limit, Wait, TTL, Undo).
	Ask = "ask"
	// Queued: the store reported for the first time that the attempt has a place
	// in the queue (Attempt, Position).
	Queued = "queued"
	// Got: the attempt holds a lease; the call has returned (Attempt, Lease,
	// Token, and Live if the lease was live when it was first looked at; At
	// was read before that look).
	Got = "got"
	// Live: the lease was live at At, which was read before the look (Attempt).
	Live = "live"
	// Write: the holder wrote to the register that its lock protects. At is
	// when the answer arrived, Since when the request was sent (Attempt, Accepted,
	// and Live if the lease was live after the answer).
	Write = "write"
	// End: the holder saw its lease end before it released it (Attempt,
	// Outcome, Note).
	End = "end"
	// Release: Release was called (Attempt).
	Release = "release"
	// Released: Release has returned (Attempt, Outcome, Note).
	Released = "released"
	// None: the attempt has ended without a lease (Attempt, Outcome, Note, and
	// Holder, the attempt that a refusal named).
	None = "none"
	// Fault: a process, the store or the network was disturbed
	// from Since to At (Note, Forgets). Proc is the affected process,
	// empty if all were.
	Fault = "fault"
	// Bye: the process has ended properly (Note: goroutines that were left).
	Bye = "bye"
	// Left: the remaining content of the store at the very end (Note, "" if the
	// store is empty).
	Left = "left"
)

// Outcomes of attempts, leases and releases.
const (
	OK          = "ok"
	Held        = "held"        // refused, or waited in vain
	Cancelled   = "cancelled"   // waited in vain while the store was silent
	Unknown     = "unknown"     // the outcome is unknown
	Unavailable = "unavailable" // certainly not done
	Lost        = "lost"
	Failed      = "failed" // any other error
)

// Modes of an attempt.
const (
	Exclusive = "exclusive"
	Shared    = "shared"
)

// Effects of a fault on the memory of the store.
const (
	// ForgetsAll: everything the store had acknowledged is gone.
	ForgetsAll = "all"
	// ForgetsSome: a part of the acknowledged data may be gone.
	ForgetsSome = "some"
	// ForgetsLeases: leases may have ended too early, as if time had passed.
	// Everything else is still there, tokens in particular.
	ForgetsLeases = "leases"
)

// Record is one line of a history.
type Record struct {
	At   int64  `json:"at"`
	Proc string `json:"proc,omitempty"`
	What string `json:"what"`
	// Attempt identifies one call of Lock or TryLock and its lease. It is also the holder's
	// name in the store, so that refusals can be checked.
	Attempt string `json:"attempt,omitempty"`

	Key    string `json:"key,omitempty"`
	Mode   string `json:"mode,omitempty"`
	Weight int    `json:"weight,omitempty"`
	Limit  int    `json:"limit,omitempty"` // 0 is no limit
	Wait   int64  `json:"wait,omitempty"`  // 0 is a try
	TTL    int64  `json:"ttl,omitempty"`
	// Undo is how long an attempt that gives up tries to undo its effects
	// in the store, in ns.
	Undo int64 `json:"undo,omitempty"`

	Position int    `json:"position,omitempty"`
	Lease    string `json:"lease,omitempty"`
	Token    int64  `json:"token,omitempty"`
	Places   string `json:"places,omitempty"` // numbers, as driver.Places
	Live     bool   `json:"live,omitempty"`
	Accepted bool   `json:"accepted,omitempty"`
	Since    int64  `json:"since,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	Holder   string `json:"holder,omitempty"`
	Forgets  string `json:"forgets,omitempty"`
	Note     string `json:"note,omitempty"`
}

// Sink receives records. It is safe for concurrent use.
type Sink interface {
	Add(Record)
}

// Writer appends to the file of a history. Several writers, of one process or
// of many, may append to one file: each record is one write.
type Writer struct{ file *os.File }

// Create starts the file of a history.
func Create(path string) (*Writer, error) { return open(path, os.O_CREATE|os.O_TRUNC) }

// Append opens the file of a history that [Create] has started.
func Append(path string) (*Writer, error) { return open(path, 0) }

func open(path string, how int) (*Writer, error) {
	file, err := os.OpenFile(path, how|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{file}, nil
}

// Add appends one record. If the file cannot be written, the history is useless, so Add
// panics.
func (w *Writer) Add(r Record) {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = w.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// recordStart is the beginning of every record.
var recordStart = []byte(`{"at":`)

// Load reads the file of a history. The last line may be incomplete because its writer died.
func Load(path string) (records []Record, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		r, err := parse(line)
		if err == nil {
			records = append(records, r)
		} else if bytes.HasSuffix(line, []byte("\n")) {
			return nil, fmt.Errorf("%s: %.80q: %w", path, line, err)
		}
	}
	return records, nil
}

// parse returns the record of a line. The line of a process that died during the write ends where
// the next record begins.
func parse(line []byte) (r Record, err error) {
	if err = json.Unmarshal(line, &r); err != nil {
		if i := bytes.LastIndex(line, recordStart); i > 0 {
			return parse(line[i:])
		}
	}
	return r, err
}
