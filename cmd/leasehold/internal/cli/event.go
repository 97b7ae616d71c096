package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// event is one line of `run --json`.
type event struct {
	Event    string       `json:"event"`
	Time     time.Time    `json:"time"`
	Key      string       `json:"key,omitempty"`
	Lease    string       `json:"leaseId,omitempty"`
	Token    int64        `json:"token,omitempty"`
	Places   []int        `json:"places,omitempty"`
	Owner    string       `json:"owner,omitempty"`
	Position int          `json:"position,omitempty"`
	Holder   *wire.Holder `json:"holder,omitempty"`
	Waited   *int64       `json:"waitedMs,omitempty"`
	Away     *int64       `json:"awayMs,omitempty"`
	Left     *int64       `json:"remainingMs,omitempty"`
	Pid      int          `json:"pid,omitempty"`
	Code     *int         `json:"code,omitempty"`
	Error    string       `json:"error,omitempty"`
}

// String returns e as a line of JSON, with the present time.
func (e event) String() string {
	e.Time = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		return "" // impossible: every field can be encoded
	}
	return string(line) + "\n"
}

func ms(d time.Duration) *int64 {
	n := d.Milliseconds()
	return &n
}

// Levels of the messages that a reporter prints as text.
const (
	levelQuiet   = iota // losses and errors
	levelNormal         // also the reasons of a pause
	levelVerbose        // everything
)

// reporter prints events on standard error, as text or as JSON.
type reporter struct {
	lines *lines
	json  bool
	level int // of text messages
}

func newReporter(w io.Writer, asJSON bool, level int) reporter {
	return reporter{lines: &lines{w: w, max: maxLines}, json: asJSON, level: level}
}

// say writes an event by write, which is now, soon or later of the reporter's lines. Soon is
// for a line that must precede the output of a command that is about to begin, and later for
// goroutines on which leases depend. The level may exclude the event from text.
func (r *reporter) say(write func(string), level int, e event, format string, args ...any) {
	switch {
	case r.json:
		write(e.String())
	case level <= r.level:
		write(fmt.Sprintf("leasehold: "+format+"\n", args...))
	}
}

func (r *reporter) acquired(l *leasehold.Lease, owner string, waited time.Duration) {
	r.say(r.lines.soon, levelVerbose, event{
		Event: "acquired", Key: l.Key(), Lease: l.ID(), Token: l.Token(), Places: l.Places(), Owner: owner,
		Waited: ms(waited), Left: ms(l.Remaining()),
	}, "lock %q: acquired after %s, lease %s, token %d", l.Key(), span(waited), l.ID(), l.Token())
}

func (r *reporter) started(l *leasehold.Lease, pid int) {
	r.say(r.lines.later, levelVerbose, event{Event: "started", Key: l.Key(), Lease: l.ID(), Pid: pid}, "lock %q: command runs as process %d", l.Key(), pid)
}

func (r *reporter) ended(l *leasehold.Lease, code int) {
	r.say(r.lines.later, levelVerbose, event{Event: "ended", Key: l.Key(), Lease: l.ID(), Code: &code}, "lock %q: command ended with code %d", l.Key(), code)
}

func (r *reporter) released(l *leasehold.Lease) {
	r.say(r.lines.now, levelVerbose, event{Event: "released", Key: l.Key(), Lease: l.ID()}, "lock %q: released", l.Key())
}

func (r *reporter) unconfirmed(l *leasehold.Lease, left time.Duration) {
	r.say(r.lines.later, levelNormal, event{Event: "unconfirmed", Key: l.Key(), Lease: l.ID(), Left: ms(left)},
		"lock %q: the store does not confirm the lease; unless it does, the command is ended in %s", l.Key(), span(left))
}

func (r *reporter) confirmed(l *leasehold.Lease) {
	r.say(r.lines.later, levelNormal, event{Event: "confirmed", Key: l.Key(), Lease: l.ID(), Left: ms(l.Remaining())},
		"lock %q: the store confirms the lease again", l.Key())
}

func (r *reporter) wanted(l *leasehold.Lease, sig signalName) {
	r.say(r.lines.later, levelVerbose, event{Event: "wanted", Key: l.Key(), Lease: l.ID()},
		"lock %q: a waiter is queued; the command gets %s", l.Key(), sig.String())
}

func (r *reporter) overdue(l *leasehold.Lease, limit, grace time.Duration) {
	r.say(r.lines.later, levelNormal, event{Event: "overdue", Key: l.Key(), Lease: l.ID()},
		"lock %q: the command has run for %s; it gets TERM now and KILL after %s", l.Key(), span(limit), span(grace))
}

// outage reports that the store does not answer, or that it answers again.
func (r *reporter) outage(o leasehold.OutageInfo) {
	away := time.Since(o.Since)
	if o.Over {
		r.say(r.lines.later, levelNormal, event{Event: "answers", Away: ms(away)}, "the store answers again after %s", span(away))
		return
	}
	r.say(r.lines.later, levelNormal, event{Event: "away", Away: ms(away), Error: o.Err.Error()}, "the store does not answer: %v; asking it again", o.Err)
}

// unaudited reports that lines of the audit log are lost. It ignores a nil err, which means
// that lines are written again.
func (r *reporter) unaudited(key string, err error) {
	if err != nil {
		r.say(r.lines.later, levelQuiet, event{Event: "unaudited", Key: key, Error: err.Error()}, "the audit log cannot be written: %v", err)
	}
}

func (r *reporter) unprotected(key string, err error) {
	r.say(r.lines.now, levelQuiet, event{Event: "unprotected", Key: key, Error: err.Error()},
		"WARNING: the command runs WITHOUT the lock, as --if-unavailable=run says: %s", strings.TrimPrefix(err.Error(), "leasehold: "))
}

// leftover reports a process that the command has left behind.
func (r *reporter) leftover(key string, pid int, grace time.Duration) {
	r.say(r.lines.later, levelNormal, event{Event: "leftover", Key: key, Pid: pid},
		"lock %q: the command has ended and left process %d behind; that gets TERM now and KILL after %s", key, pid, span(grace))
}

// survives reports a process of the command that cannot be ended.
func (r *reporter) survives(key string, s proc.Survivor) {
	reason := "still runs after KILL"
	if s.Denied {
		reason = "cannot be signalled: operation not permitted"
	}
	r.say(r.lines.later, levelQuiet, event{Event: "survives", Key: key, Pid: s.Pid, Error: reason},
		"lock %q: WARNING: process %d of user %s %s; leasehold waits for its end, and cannot keep it from working when the lease is over", key, s.Pid, userName(s.UID), reason)
}

// userName returns the name of a user, or the id if there is no name.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

func (r *reporter) lost(l *leasehold.Lease, cause error, consequence string) {
	r.say(r.lines.later, levelQuiet, event{Event: "lost", Key: l.Key(), Lease: l.ID(), Error: cause.Error()},
		"lock %q: %v; %s", l.Key(), cause, consequence)
}
