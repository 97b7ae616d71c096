// Package respproxy is a proxy between a Redis client and a server that applies the faults of
// networks to single requests.
//
// It understands RESP2 and RESP3, so that a test can lose the reply of one command, hold a
// request back until another event, or swallow published messages:
//
//	proxy := respproxy.Start(t, server.Addr())
//	lost := proxy.Add(respproxy.DropReply, 1, respproxy.Command("EVALSHA"))
//	// … a client, which dials proxy.Addr(), takes a lock …
//	lost.WaitFired(t, 1) // the server has granted it and the client does not know
//
// Requests and replies are matched by their order, also when they are pipelined. Pushes and what a
// subscriber receives are not counted as replies, so rules that wait for the reply never fire for
// SUBSCRIBE and its kin. CLIENT REPLY, MONITOR, commands that are no array, and TLS are not
// understood.
package respproxy

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/address"
)

// Proxy forwards connections to one server. Its methods may be called from
// any goroutine.
type Proxy struct {
	tb       testing.TB
	upstream string
	addr     string
	running  sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	closed   bool
	conns    map[*conn]struct{}
	rules    []*Rule
	muted    bool
	changed  chan struct{} // closed, and replaced, when muted or a count changes

	dropsMessages bool
}

// Start starts a proxy to the server at the address. It ends with the test.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	listener, err := address.Listen()
	if err != nil {
		tb.Fatalf("respproxy: %v", err)
	}
	p := &Proxy{
		tb:       tb,
		upstream: upstream,
		addr:     listener.Addr().String(),
		conns:    make(map[*conn]struct{}),
		changed:  make(chan struct{}),
	}
	p.serve(listener)
	tb.Cleanup(p.close)
	return p
}

// Addr returns the address that clients dial, as host:port.
func (p *Proxy) Addr() string { return p.addr }

// Add puts a rule in force for the first n requests for which all matches
// hold, or for all of them if n is 0. A request is subject to one rule: the
// first one, in the order in which they were added, that has not had its n.
func (p *Proxy) Add(action Action, n int, matches ...Match) *Rule {
	r := &Rule{
		proxy:   p,
		action:  action,
		matches: matches,
		limit:   n,
		fired:   make(chan struct{}),
		open:    make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// rule returns the rule to which the request is subject, or nil.
func (p *Proxy) rule(args [][]byte) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.rules, func(r *Rule) bool { return r.takes(args) })
	if i < 0 {
		return nil
	}
	return p.rules[i]
}

// Mute makes a black hole of all connections. No data passes either way, nor does the end of a
// connection, and new connections are accepted. As with a network that heals, the data of that
// time arrives after [Proxy.Unmute]. A frame that is being passed on during the call may still
// arrive.
func (p *Proxy) Mute() { p.mute(true) }

// Unmute ends [Proxy.Mute].
func (p *Proxy) Unmute() { p.mute(false) }

func (p *Proxy) mute(muted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = muted
	p.tell()
}

// mutes reports whether connections are muted, and returns a channel that
// is closed when that may have changed.
func (p *Proxy) mutes() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted, p.changed
}

// tell wakes all goroutines that wait for a change. The mutex is held.
func (p *Proxy) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// DropPubSub sets whether messages to subscribers are swallowed. The confirmations of
// subscriptions pass.
func (p *Proxy) DropPubSub(drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropsMessages = drop
}

// swallowsMessage decides about a message to a subscriber.
func (p *Proxy) swallowsMessage() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropsMessages
}

// CutAll closes every connection.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.cut()
	}
}

// Refuse sets whether new connections are refused, as by a server that is down. Connections that
// exist are left alone.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	listener := p.listener
	if refuse {
		p.listener = nil
	}
	p.mu.Unlock()

	switch {
	case refuse && listener != nil:
		_ = listener.Close()
	case !refuse && listener == nil:
		p.listenAgain()
	}
}

// listenAgain takes the address back. No other program gets its port, but a connection that is
// being torn down may hold it for a moment.
func (p *Proxy) listenAgain() {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var listener net.Listener
		if listener, err = net.Listen("tcp", p.addr); err == nil {
			p.serve(listener)
			return
		}
	}
	p.tb.Errorf("respproxy: listen again: %v", err)
}

// serve accepts connections until the listener is closed.
func (p *Proxy) serve(listener net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				p.running.Go(func() { p.connect(client) })
			}
		}
	})
}

// connect forwards a connection until it ends.
func (p *Proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.upstream, patience)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &conn{proxy: p, client: client, server: server, done: make(chan struct{})}
	if !p.admit(c) {
		c.cut()
		return
	}
	c.forward()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// admit adds the connection, unless the proxy has been closed.
func (p *Proxy) admit(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// close ends everything and waits for it.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse(true)
	p.CutAll()
	p.running.Wait()
}
