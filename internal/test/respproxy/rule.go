package respproxy

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience bounds [Rule.WaitFired]. It is long because the machine may be busy, and is used up
// only in case of an error.
const patience = 20 * time.Second

// Match reports whether a request is selected. The arguments are the command and its arguments.
type Match func(args [][]byte) bool

// Command matches requests by the command and by the arguments that follow it
// at once: Command("CLIENT", "KILL"). Case does not matter.
func Command(words ...string) Match {
	return func(args [][]byte) bool {
		if len(args) < len(words) {
			return false
		}
		for i, word := range words {
			if !strings.EqualFold(word, string(args[i])) {
				return false
			}
		}
		return true
	}
}

// Mentions matches requests that have the text inside some argument.
func Mentions(text string) Match {
	return func(args [][]byte) bool {
		return slices.ContainsFunc(args, func(arg []byte) bool { return bytes.Contains(arg, []byte(text)) })
	}
}

// Action is the effect of a rule on a request.
//
// A stream of bytes cannot have a hole in its middle: a client would take the next reply for the
// missing one. After [DropReply] no data reaches the client over this connection, and after
// [DropRequest] no data reaches the server, until the client gives up and closes it.
type Action struct {
	verb  verb
	delay time.Duration
}

type verb uint8

const (
	dropReply verb = iota
	dropRequest
	hold
	delay
	cut
	cutAfterForward
)

var (
	// DropReply lets the request reach the server and swallows the reply. The
	// rule fires when the reply has come, so the request has taken effect.
	DropReply = Action{verb: dropReply}
	// DropRequest swallows the request. The rule fires when that is done.
	DropRequest = Action{verb: dropRequest}
	// Hold keeps the request, and all behind it on this connection, until
	// [Rule.Release]. It then reaches the server even if the client has gone.
	// The rule fires when the request is held.
	Hold = Action{verb: hold}
	// Cut closes the connection instead of forwarding the request, and then
	// fires.
	Cut = Action{verb: cut}
	// CutAfterForward closes the connection when the reply has come, without
	// passing it on, and then fires.
	CutAfterForward = Action{verb: cutAfterForward}
)

// Delay keeps the request, and all requests behind it on this connection, for the given time. The
// rule fires when the time begins.
func Delay(d time.Duration) Action { return Action{verb: delay, delay: d} }

// Rule is a fault in force.
type Rule struct {
	proxy   *Proxy
	action  Action
	matches []Match
	limit   int           // of matches; 0 for no limit
	fired   chan struct{} // closed when the rule fires first
	open    chan struct{} // closed by Release

	// Guarded by proxy.mu.
	matched, count int
	released       bool
}

// Fired returns a channel that is closed when the rule fires for the first time. The action
// defines when.
func (r *Rule) Fired() <-chan struct{} { return r.fired }

// Count returns how often the rule has fired.
func (r *Rule) Count() int {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return r.count
}

// WaitFired waits until the rule has fired n times, and fails the test if it
// does not.
func (r *Rule) WaitFired(tb testing.TB, n int) {
	tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		r.proxy.mu.Lock()
		count, changed := r.count, r.proxy.changed
		r.proxy.mu.Unlock()
		if count >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			tb.Fatalf("respproxy: rule fired %d times in %v, want %d", count, patience, n)
		}
	}
}

// Release removes the rule and forwards the requests that it holds.
func (r *Rule) Release() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	if !r.released {
		r.released = true
		close(r.open)
	}
}

// takes reports whether the rule matches the request, and counts it. The proxy's mutex is held.
func (r *Rule) takes(args [][]byte) bool {
	exhausted := r.released || r.limit > 0 && r.matched == r.limit
	if exhausted || slices.ContainsFunc(r.matches, func(m Match) bool { return !m(args) }) {
		return false
	}
	r.matched++
	return true
}

// does reports whether there is a rule with that action.
func (r *Rule) does(v verb) bool { return r != nil && r.action.verb == v }

// fire counts an effect and wakes its waiters.
func (r *Rule) fire() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	if r.count++; r.count == 1 {
		close(r.fired)
	}
	r.proxy.tell()
}
