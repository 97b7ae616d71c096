package mysqltest

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Proxy forwards between clients and a server, and cuts connections.
type Proxy struct {
	listener net.Listener
	server   *Server
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn // both sides
	cuts   []*Cut
	frozen bool
	silent map[net.Conn]bool // the sides of frozen connections
}

// Cut is a planned cut.
type Cut struct {
	text  []byte
	after bool
	fired chan struct{}
}

// Fired returns a channel that is closed when the connection is cut.
func (c *Cut) Fired() <-chan struct{} { return c.fired }

// Proxy starts a proxy to the server. It ends with the test.
func (s *Server) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(tb, err)
	p := &Proxy{listener: l, server: s, silent: make(map[net.Conn]bool)}
	p.running.Go(p.serve)
	tb.Cleanup(func() {
		_ = l.Close()
		p.CutAll()
		p.running.Wait()
	})
	return p
}

// URL returns the address of the server's database through the proxy.
func (p *Proxy) URL() string {
	return strings.Replace(p.server.URL(), p.server.addr, p.listener.Addr().String(), 1)
}

// CutBefore cuts the next connection that sends a statement with this text, before the server
// receives it.
func (p *Proxy) CutBefore(text string) *Cut { return p.cut(text, false) }

// CutAfter cuts it when the server has answered, before the client receives the answer.
func (p *Proxy) CutAfter(text string) *Cut { return p.cut(text, true) }

func (p *Proxy) cut(text string, after bool) *Cut {
	c := &Cut{text: []byte(text), after: after, fired: make(chan struct{})}
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

// Freeze makes all connections silent for ever, as if their packets were dropped. If on is set,
// those of new ones are dropped too.
func (p *Proxy) Freeze(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = on
	for _, c := range p.conns {
		p.silent[c] = true
	}
}

// mute reports whether the data of a connection is dropped.
func (p *Proxy) mute(from net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent[from]
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
	server, err := net.Dial("tcp", p.server.addr)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.silent[client], p.silent[server] = p.frozen, p.frozen
	p.mu.Unlock()
	var mu sync.Mutex
	var next *Cut // for the next answer
	p.running.Go(func() {
		defer client.Close()
		p.pump(client, server, func([]byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if next == nil {
				return true
			}
			close(next.fired)
			return false
		})
	})
	p.pump(server, client, func(data []byte) bool {
		c := p.planned(data)
		if c == nil {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		if next = c; !c.after {
			close(c.fired)
		}
		return c.after
	})
}

// planned returns and removes the cut that is planned for a request.
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

// pump forwards until a connection ends, or pass returns false.
func (p *Proxy) pump(to, from net.Conn, pass func(data []byte) bool) {
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		switch {
		case err == nil && p.mute(from):
			continue
		case err != nil || !pass(buf[:n]):
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
