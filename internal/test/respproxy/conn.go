package respproxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// conn is one connection through the proxy. One goroutine forwards requests,
// another one replies.
type conn struct {
	proxy          *Proxy
	client, server net.Conn
	pending        *pending
	// hole is set when a reply is missing, so that no later one may follow. It
	// belongs to the goroutine that forwards replies.
	hole bool

	once sync.Once
	done chan struct{} // closed when the connection is cut
}

func newConn(p *Proxy, client, server net.Conn) *conn {
	return &conn{proxy: p, client: client, server: server, pending: newPending(), done: make(chan struct{})}
}

// forward returns when the connection has ended on both sides.
func (c *conn) forward() {
	var replies sync.WaitGroup
	replies.Go(c.forwardReplies)
	c.forwardRequests()
	replies.Wait()
}

// cut closes both sides at once.
func (c *conn) cut() {
	c.once.Do(func() {
		close(c.done)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

// forwardRequests passes on the requests of the client. The client's end is passed on after its
// last request and closes one direction only: a request that was held is executed although the
// client no longer waits for the reply.
func (c *conn) forwardRequests() {
	requests := newFrameReader(c.client)
	for {
		f, err := requests.next()
		if err != nil || len(f.elems) == 0 || !c.request(f) {
			break
		}
	}
	if c.passable() {
		_ = c.server.(*net.TCPConn).CloseWrite()
	}
}

// request handles one request and reports whether the next one may follow.
func (c *conn) request(f frame) bool {
	rule := c.proxy.rule(f.elems)
	if rule != nil && !c.apply(rule) {
		return false
	}
	c.pending.push(f.elems, rule)
	if !c.passable() {
		return false
	}
	_, err := c.server.Write(f.raw)
	return err == nil
}

// apply runs the part of a rule before its request is forwarded, and reports whether to forward
// it.
func (c *conn) apply(rule *Rule) bool {
	switch rule.action.verb {
	case hold:
		rule.fire()
		return happens(c, rule.open)
	case delay:
		rule.fire()
		return happens(c, time.After(rule.action.delay))
	case dropRequest:
		rule.fire()
		_, _ = io.Copy(io.Discard, c.client)
		return false
	case cut:
		c.cut()
		rule.fire()
		return false
	default:
		return true
	}
}

// forwardReplies passes on the frames of the server, and ends the connection when the server
// does.
func (c *conn) forwardReplies() {
	defer c.cut()
	replies := newFrameReader(c.server)
	for {
		f, err := replies.next()
		if err != nil {
			c.passable()
			return
		}
		if !c.reply(f) {
			return
		}
	}
}

// reply handles one frame from the server and reports whether the connection stays open.
func (c *conn) reply(f frame) bool {
	a := c.pending.settle(f)
	if a.message && c.proxy.swallowsMessage() {
		return true
	}
	rule := a.rule()
	if rule.does(cutAfterForward) {
		c.cut()
		rule.fire()
		return false
	}
	c.hole = c.hole || rule.does(dropReply)
	if !c.pass(f) {
		return false
	}
	if a.last && (rule.does(pass) || rule.does(dropReply)) {
		rule.fire()
	}
	return true
}

// pass sends a frame to the client, unless a frame before it is missing, and reports whether the
// connection stays open. When the client has gone, the replies to its last requests are still
// read: if the connection to the server were closed, it might not execute them.
func (c *conn) pass(f frame) bool {
	if c.hole {
		return true
	}
	if !c.passable() {
		return false
	}
	_, err := c.client.Write(f.raw)
	c.hole = err != nil
	return true
}

// passable waits while the connection is muted, and reports false if it was cut in that time.
func (c *conn) passable() bool {
	for {
		muted, changed := c.proxy.mutes()
		if !muted {
			return true
		}
		if !happens(c, changed) {
			return false
		}
	}
}

// happens waits for an event and reports whether it came before the
// connection was cut.
func happens[T any](c *conn, event <-chan T) bool {
	select {
	case <-event:
		return true
	case <-c.done:
		return false
	}
}
