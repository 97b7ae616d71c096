package respproxy

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// conn is one connection through the proxy. One goroutine forwards requests,
// another one replies.
type conn struct {
	proxy          *Proxy
	client, server net.Conn

	mu sync.Mutex
	// pending are the rules of the requests without a reply, in their order; nil without a rule.
	pending []*Rule
	// hole is set when a reply is missing, so that no later one may follow.
	hole bool

	once sync.Once
	done chan struct{} // closed when the connection is cut
}

// The commands of subscribers, and the kinds of message that subscribers receive. A frame that
// begins with one of them confirms a subscription or is a message: a push in RESP3, an array in
// RESP2. It is no reply.
var (
	confirmed = []string{
		"subscribe", "psubscribe", "ssubscribe",
		"unsubscribe", "punsubscribe", "sunsubscribe",
	}
	messages = []string{"message", "pmessage", "smessage"}
)

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
	for requests := bufio.NewReader(c.client); ; {
		f, err := readFrame(requests)
		if err != nil || len(f.words) == 0 || !c.request(f) {
			break
		}
	}
	if c.passable() {
		_ = c.server.(*net.TCPConn).CloseWrite()
	}
}

// request handles one request and reports whether the next one may follow.
func (c *conn) request(f frame) bool {
	rule := c.proxy.rule(f.words)
	if rule != nil && !c.apply(rule) {
		return false
	}
	c.mu.Lock()
	if slices.Contains(confirmed, strings.ToLower(f.first())) {
		c.hole = c.hole || rule.does(dropReply)
	} else {
		c.pending = append(c.pending, rule)
	}
	c.mu.Unlock()
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
	for replies := bufio.NewReader(c.server); ; {
		f, err := readFrame(replies)
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
	rule, message := c.settle(f)
	switch {
	case message && c.proxy.swallowsMessage():
		return true
	case rule.does(cutAfterForward):
		c.cut()
		rule.fire()
		return false
	}
	if !c.pass(f) {
		return false
	}
	if rule.does(dropReply) {
		rule.fire()
	}
	return true
}

// settle returns the rule of the request that a frame answers, or nil, and whether the frame is a
// message to a subscriber.
func (c *conn) settle(f frame) (rule *Rule, message bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case slices.Contains(messages, f.first()):
		return nil, true
	case f.kind == '>' || slices.Contains(confirmed, f.first()) || len(c.pending) == 0:
		return nil, false
	}
	rule, c.pending = c.pending[0], c.pending[1:]
	c.hole = c.hole || rule.does(dropReply)
	return rule, false
}

// pass sends a frame to the client, unless a frame before it is missing, and reports whether the
// connection stays open. When the client has gone, the replies to its last requests are still
// read: if the connection to the server were closed, it might not execute them.
func (c *conn) pass(f frame) bool {
	c.mu.Lock()
	hole := c.hole
	c.mu.Unlock()
	if hole {
		return true
	}
	if !c.passable() {
		return false
	}
	if _, err := c.client.Write(f.raw); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hole = true
	}
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
