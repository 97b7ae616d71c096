// Package tcpproxy forwards connections between a client and a server, and disturbs them.
package tcpproxy

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/address"
)

// Proxy forwards between clients and a server, and cuts connections. It finds a text only within
// one read of up to 64 KB.
type Proxy struct {
	listener net.Listener
	upstream func() string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // both sides
	cuts  []*Cut
	muted chan struct{} // not nil while muted; closed by Unmute
	slow  time.Duration // delay of a new connection
	// stranded is closed when the present connections stop forwarding.
	stranded chan struct{}
	ended    chan struct{}
}

// Cut is a plan for the next request with a text.
type Cut struct {
	text, answer []byte
	kind         kind
	fired, let   chan struct{}
}

type kind int

const (
	before kind = iota
	after
	within
	hold
)

// Fired returns a channel that is closed when the connection is cut, or the request held.
func (c *Cut) Fired() <-chan struct{} { return c.fired }

// Let forwards the request that is held.
func (c *Cut) Let() { close(c.let) }

// Start starts a proxy to a server, such as "127.0.0.1:5432". It ends with the test.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	return Balance(tb, func() string { return upstream })
}

// Balance is [Start] for a server that upstream chooses for each connection.
func Balance(tb testing.TB, upstream func() string) *Proxy {
	tb.Helper()
	l, err := address.Listen()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: l, upstream: upstream, stranded: make(chan struct{}), ended: make(chan struct{})}
	p.running.Go(p.serve)
	tb.Cleanup(func() {
		_ = l.Close()
		close(p.ended)
		p.Unmute()
		p.CutAll()
		p.running.Wait()
	})
	return p
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// CutBefore cuts the next connection that sends a request with this text, before the
// server receives it.
func (p *Proxy) CutBefore(text string) *Cut { return p.plan(before, text, "") }

// CutAfter cuts it when the server has answered, before the client receives the answer.
func (p *Proxy) CutAfter(text string) *Cut { return p.plan(after, text, "") }

// CutAnswer cuts it when the server has sent an answer with the other text.
func (p *Proxy) CutAnswer(text, answer string) *Cut { return p.plan(after, text, answer) }

// CutWithin cuts it when the client has received the server's answer up to the other text.
func (p *Proxy) CutWithin(text, answer string) *Cut { return p.plan(within, text, answer) }

// Hold stops the next connection that sends a request with this text, before it, until [Cut.Let].
func (p *Proxy) Hold(text string) *Cut { return p.plan(hold, text, "") }

func (p *Proxy) plan(k kind, text, answer string) *Cut {
	c := &Cut{text: []byte(text), answer: []byte(answer), kind: k, fired: make(chan struct{}), let: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c
}

// CutAll cuts all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// Mute stops forwarding in both directions, until Unmute.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.muted == nil {
		p.muted = make(chan struct{})
	}
}

// Unmute forwards the held data, and goes on forwarding.
func (p *Proxy) Unmute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.muted != nil {
		close(p.muted)
		p.muted = nil
	}
}

// Strand makes the present connections stop forwarding, and stay open, as
// behind a failed router. New connections work.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.stranded)
	p.stranded = make(chan struct{})
}

// Slow delays new connections by d.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = d
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	time.Sleep(slow)
	server, err := net.Dial("tcp", p.upstream())
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	link := &link{proxy: p, stranded: p.stranded}
	p.mu.Unlock()
	p.running.Go(func() {
		defer client.Close()
		link.pump(client, server, link.answer)
	})
	link.pump(server, client, link.request)
}

// link is a connection, and the cut for its next answer.
type link struct {
	proxy    *Proxy
	stranded chan struct{} // closed when forwarding has stopped

	mu   sync.Mutex
	next *Cut
}

// pump forwards what pass returns, until a connection ends or pass returns false.
func (l *link) pump(to, from net.Conn, pass func(data []byte) ([]byte, bool)) {
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		l.proxy.mu.Lock()
		muted := l.proxy.muted
		l.proxy.mu.Unlock()
		if muted != nil {
			<-muted
		}
		select {
		case <-l.stranded:
			<-l.proxy.ended
			return
		default:
		}
		data, on := pass(buf[:n])
		if _, err := to.Write(data); err != nil || !on {
			return
		}
	}
}

func (l *link) request(data []byte) ([]byte, bool) {
	c := l.proxy.planned(data)
	switch {
	case c == nil:
		return data, true
	case c.kind == after, c.kind == within:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next = c
		return data, true
	}
	close(c.fired)
	if c.kind == hold {
		select {
		case <-c.let:
			return data, true
		case <-l.proxy.ended:
		}
	}
	return nil, false
}

// planned returns and removes the plan for a request.
func (p *Proxy) planned(data []byte) *Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.cuts, func(c *Cut) bool { return bytes.Contains(data, c.text) })
	if i < 0 {
		return nil
	}
	c := p.cuts[i]
	p.cuts = slices.Delete(p.cuts, i, i+1)
	return c
}

func (l *link) answer(data []byte) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		return data, true
	}
	at := bytes.Index(data, l.next.answer)
	if at < 0 {
		return data, true
	}
	close(l.next.fired)
	if l.next.kind == within {
		return data[:at], false
	}
	return nil, false
}
