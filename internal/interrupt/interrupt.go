// Package interrupt ends a call that waits in a socket when its context is
// cancelled, without a goroutine for every call.
//
// Client libraries look at a context's deadline while they wait for a reply,
// but not at its cancellation, and an additional goroutine for every call would double
// the time of a round trip. So the caller's goroutine waits in the socket, and
// a cancellation, which is rare, makes the socket's deadline pass. The deadline itself links
// a call to its socket: every call has a unique deadline, and the library sets it on the
// connection that it uses.
package interrupt

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long a call may still wait after it was cancelled. A healthy server answers
// within it, and the connection can be used again.
const grace = 5 * time.Millisecond

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Call is the context of one command or pipeline. Its deadline, if it was
// cancelled, has passed.
type Call struct {
	context.Context
	conns    *Conns
	deadline time.Time
	done     atomic.Bool
	dialed   atomic.Pointer[conn] // the last connection that was made for the call

	// Of a call whose context can be cancelled; guarded by watching of the Conns.
	place int         // in young, from 1; 0 if it is not there
	stop  func() bool // nil until the context is watched

	// Of a timed call.
	moment *moment
	// These are guarded by the moment's mu.
	ended  chan struct{} // made by the first Done
	closed bool          // ended is
	seat   int           // among the moment's calls
}

// Deadline implements [context.Context].
func (c *Call) Deadline() (time.Time, bool) {
	if c.Err() != nil {
		return past, true
	}
	return c.deadline, true
}

// Over reports whether the time of the call is over, or it was cancelled. If a call that is not
// over fails with a timeout, the deadline was that of another call on its connection.
func (c *Call) Over() bool {
	d, _ := c.Deadline()
	return !time.Now().Before(d)
}

// End is called when the call has returned.
func (c *Call) End() {
	if c.Context.Done() == nil {
		return
	}
	c.done.Store(true)
	c.conns.unwatch(c)
	if c.moment != nil {
		c.moment.remove(c)
	}
}

// cancelled ends a call after its context has ended.
func (c *Call) cancelled() {
	if c.moment != nil {
		c.moment.end(c)
	}
	c.interrupt()
}

// interrupt ends the call's wait. It tries again until the call has reached a socket: before
// that the library watches the context, but there is a gap between the two.
func (c *Call) interrupt() {
	for time.Sleep(grace); !c.done.Load() && !c.conns.interrupt(c.deadline); time.Sleep(grace) {
		if c.Unsent() { // the greeting has deadlines of its own, one after the other
			_ = c.dialed.Load().Conn.SetDeadline(past)
		}
	}
}

// Conns are the open connections of a client. The zero value is empty.
type Conns struct {
	// DropSilent makes a call that has timed out close the idle connections to the same
	// server, since each of them would probably cost another timeout. It is set before the
	// first connection.
	DropSilent bool
	// Greets is true if Greeted is called. It is set before the first connection.
	Greets bool
	// Verb is the beginning of every command that has an effect. An error on a connection before
	// the first such command is reported as an error of dialling, after which the call certainly
	// had no effect. If Verb is empty, there is no such report. It is set before the first
	// connection.
	Verb string

	calls atomic.Int64
	made  atomic.Uint64

	mu  sync.Mutex
	set map[*conn]struct{}

	timing  sync.Mutex
	moments map[int64]*moment // to come, by when

	watching sync.Mutex
	young    []*Call // not yet watched
	timer    *time.Timer
	ticking  bool
}

// Len returns how many connections are open.
func (cs *Conns) Len() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.set)
}

// Made counts the connections there have been.
func (cs *Conns) Made() uint64 { return cs.made.Load() }

// Begin returns the context for a call: it ends with ctx, and the socket that
// serves it gives up after the timeout.
func (cs *Conns) Begin(ctx context.Context, timeout time.Duration) *Call {
	c := new(Call)
	cs.BeginIn(ctx, c, timeout)
	return c
}

// BeginIn is Begin for a call that is part of something else, and is zero.
func (cs *Conns) BeginIn(ctx context.Context, c *Call, timeout time.Duration) {
	c.Context, c.conns, c.deadline = ctx, cs, cs.deadline(ctx, time.Now(), timeout)
	cs.watch(c)
}

// watch makes a call end with its context, if that can be cancelled. Most calls are answered long
// before grace has passed, and watching a context costs as much as the rest of Begin. So only
// calls that are still under way at a tick are watched.
func (cs *Conns) watch(c *Call) {
	if c.Context.Done() == nil {
		return
	}
	cs.watching.Lock()
	defer cs.watching.Unlock()
	cs.young = append(cs.young, c)
	c.place = len(cs.young)
	switch {
	case cs.ticking:
		return
	case cs.timer == nil:
		cs.timer = time.AfterFunc(grace, cs.tick)
	default:
		cs.timer.Reset(grace)
	}
	cs.ticking = true
}

// tick starts to watch the contexts of the calls that are under way. The ticks stop when there
// are no calls.
func (cs *Conns) tick() {
	cs.watching.Lock()
	grown := cs.young
	cs.young = nil
	for _, c := range grown {
		c.place = 0
	}
	if cs.ticking = len(grown) > 0; cs.ticking {
		cs.timer.Reset(grace)
	}
	cs.watching.Unlock()
	for _, c := range grown {
		cs.follow(c)
	}
}

func (cs *Conns) follow(c *Call) {
	stop := context.AfterFunc(c.Context, c.cancelled) // without the lock, since the context may be of any type
	cs.watching.Lock()
	c.stop = stop
	cs.watching.Unlock()
	if c.done.Load() {
		stop()
	}
}

// unwatch forgets a call that has returned.
func (cs *Conns) unwatch(c *Call) {
	cs.watching.Lock()
	stop := c.stop
	if c.place > 0 {
		last := len(cs.young) - 1
		cs.young[c.place-1] = cs.young[last]
		cs.young[c.place-1].place = c.place
		cs.young[last] = nil
		cs.young, c.place = cs.young[:last], 0
	}
	cs.watching.Unlock()
	if stop != nil {
		stop()
	}
}

// deadline returns a time a little before the end of the timeout or of ctx,
// which no other call under way has.
func (cs *Conns) deadline(ctx context.Context, now time.Time, timeout time.Duration) time.Time {
	const mark = 1<<16 - 1 // ns: the part of a deadline that distinguishes calls
	t := now.Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(t) {
		t = d
	}
	return time.Unix(0, (t.UnixNano()-mark)&^mark|cs.calls.Add(1)&mark)
}

// interrupt makes the connection that serves the deadline fail at once. It
// reports whether there is one.
func (cs *Conns) interrupt(deadline time.Time) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.set {
		if c.interrupt(deadline) {
			return true
		}
	}
	return false
}

// Add returns nc, made interruptible. ctx is the context of the call that dialled it.
func (cs *Conns) Add(ctx context.Context, nc net.Conn) net.Conn {
	c := &conn{Conn: nc, owner: cs, number: cs.made.Add(1)}
	if call, ok := ctx.Value(callKey{}).(*Call); ok {
		call.dialed.Store(c)
	}
	if f, ok := ctx.Value(familyKey{}).(*family); ok {
		f.mu.Lock()
		f.conns = append(f.conns, c)
		f.mu.Unlock()
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.set == nil {
		cs.set = make(map[*conn]struct{})
	}
	cs.set[c] = struct{}{}
	if sc, ok := nc.(syscall.Conn); ok {
		return &rawConn{conn: c, Conn: sc}
	}
	return c
}

// conn is a connection with the deadline of the call that it serves.
type conn struct {
	net.Conn
	owner  *Conns
	number uint64 // among all that were made, from 1

	mu          sync.Mutex
	serves      time.Time // the deadline of the call
	interrupted bool
	spoken      atomic.Bool // a verb was written
	greeted     bool
	greeting    []time.Time // the deadlines there were before that
}

// interrupt ends the call of the given deadline if the connection serves it.
func (c *conn) interrupt(deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves != deadline {
		return false
	}
	c.interrupted = true
	_ = c.Conn.SetDeadline(past)
	return true
}

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetDeadline(c.serve(t))
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetReadDeadline(c.serve(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.serve(t))
}

// serve notes that the connection serves the call of deadline t, and returns
// the deadline to be set.
func (c *conn) serve(t time.Time) time.Time {
	if c.serves != t {
		c.serves, c.interrupted = t, false
		if c.owner.Greets && !c.greeted && len(c.greeting) < maxGreeting {
			c.greeting = append(c.greeting, t)
		}
	}
	if c.interrupted {
		return past
	}
	return t
}

// Close implements [net.Conn]. A library closes a connection after a timeout of its call.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.set, c)
	c.owner.mu.Unlock()
	if c.owner.DropSilent && c.idle(time.Now()) {
		c.owner.dropIdle(c.RemoteAddr())
	}
	return c.Conn.Close()
}

// idle reports whether the call that the connection served is over, be it that
// it has been answered or that it has timed out. A subscription is never.
func (c *conn) idle(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.serves.IsZero() && now.After(c.serves)
}

// dropIdle closes the idle connections to a server. The library notices it when it tries to use
// them.
func (cs *Conns) dropIdle(addr net.Addr) {
	now := time.Now()
	cs.drop(func(c *conn) bool { return c.RemoteAddr().String() == addr.String() && c.idle(now) })
}

// KeepOnly closes the connections that do not lead to the server at addr: it has
// taken the place of another.
func (cs *Conns) KeepOnly(addr net.Addr) {
	cs.drop(func(c *conn) bool { return c.RemoteAddr().String() != addr.String() })
}

// CutUpTo closes the connections that existed when Made returned made.
func (cs *Conns) CutUpTo(made uint64) {
	cs.drop(func(c *conn) bool { return c.number <= made })
}

// Cut closes all connections.
func (cs *Conns) Cut() { cs.drop(func(*conn) bool { return true }) }

func (cs *Conns) drop(which func(*conn) bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.set {
		if which(c) {
			delete(cs.set, c)
			_ = c.Conn.Close()
		}
	}
}

// rawConn lets a library see whether the peer has closed an idle connection.
type rawConn struct {
	*conn
	syscall.Conn
}
