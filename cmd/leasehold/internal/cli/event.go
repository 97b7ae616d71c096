package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// event is a line of `run --json`: what happened, and what belongs to it.
type event struct {
	Event    string       `json:"event"`
	Time     time.Time    `json:"time"`
	Key      string       `json:"key,omitempty"`
	Lease    string       `json:"leaseId,omitempty"`
	Token    int64        `json:"token,omitempty"`
	Owner    string       `json:"owner,omitempty"`
	Position int          `json:"position,omitempty"`
	Holder   *wire.Holder `json:"holder,omitempty"`
	Waited   *int64       `json:"waitedMs,omitempty"`
	Left     *int64       `json:"remainingMs,omitempty"`
	Pid      int          `json:"pid,omitempty"`
	Code     *int         `json:"code,omitempty"`
	Error    string       `json:"error,omitempty"`
}

func writeEvent(w io.Writer, e event) {
	e.Time = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		return // cannot be: every field can be written
	}
	fmt.Fprintf(w, "%s\n", line)
}

func ms(d time.Duration) *int64 {
	n := d.Milliseconds()
	return &n
}

// How much a teller says to people.
const (
	always = iota // losses, and what must be done about them
	normal        // what explains a pause
	chatty        // everything
)

// teller says on standard error what happens, to people or to machines.
type teller struct {
	w     io.Writer
	json  bool
	level int // of what is said to people
}

func (t *teller) tell(level int, e event, format string, args ...any) {
	switch {
	case t.json:
		writeEvent(t.w, e)
	case level <= t.level:
		fmt.Fprintf(t.w, "leasehold: "+format+"\n", args...)
	}
}

func (t *teller) acquired(l *leasehold.Lease, owner string, waited time.Duration) {
	t.tell(chatty, event{
		Event: "acquired", Key: l.Key(), Lease: l.ID(), Token: l.Token(), Owner: owner,
		Waited: ms(waited), Left: ms(l.Remaining()),
	}, "lock %q: acquired after %s, lease %s, token %d", l.Key(), span(waited), l.ID(), l.Token())
}

func (t *teller) started(l *leasehold.Lease, pid int) {
	t.tell(chatty, event{Event: "started", Key: l.Key(), Lease: l.ID(), Pid: pid}, "lock %q: command runs as process %d", l.Key(), pid)
}

func (t *teller) ended(l *leasehold.Lease, code int) {
	t.tell(chatty, event{Event: "ended", Key: l.Key(), Lease: l.ID(), Code: &code}, "lock %q: command ended with code %d", l.Key(), code)
}

func (t *teller) released(l *leasehold.Lease) {
	t.tell(chatty, event{Event: "released", Key: l.Key(), Lease: l.ID()}, "lock %q: released", l.Key())
}

func (t *teller) unconfirmed(l *leasehold.Lease, left time.Duration) {
	t.tell(normal, event{Event: "unconfirmed", Key: l.Key(), Lease: l.ID(), Left: ms(left)},
		"lock %q: the store does not confirm the lease; unless it does, the command is ended in %s", l.Key(), span(left))
}

func (t *teller) confirmed(l *leasehold.Lease) {
	t.tell(normal, event{Event: "confirmed", Key: l.Key(), Lease: l.ID(), Left: ms(l.Remaining())},
		"lock %q: the store confirms the lease again", l.Key())
}

func (t *teller) overdue(l *leasehold.Lease, limit, grace time.Duration) {
	t.tell(normal, event{Event: "overdue", Key: l.Key(), Lease: l.ID()},
		"lock %q: the command has run for %s; it gets TERM now and KILL after %s", l.Key(), span(limit), span(grace))
}

func (t *teller) lost(l *leasehold.Lease, cause error, consequence string) {
	t.tell(always, event{Event: "lost", Key: l.Key(), Lease: l.ID(), Error: cause.Error()},
		"lock %q: %v; %s", l.Key(), cause, consequence)
}
