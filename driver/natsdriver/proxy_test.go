package natsdriver

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// proxy passes the connections of clients to a server, and disturbs them.
type proxy struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	rules []*rule
}

// rule waits for a text from a client, and is then over.
type rule struct {
	text  string
	what  string // see the constants
	fired chan struct{}
	let   chan struct{} // closed to pass on what is held
}

const (
	cutBefore = "cut before it"
	cutAfter  = "cut the answer"
	holdIt    = "hold it"
)

func startProxy(t testing.TB, server string) *proxy {
	t.Helper()
	l, err := redistest.Listen()
	noError(t, err)
	p := &proxy{listener: l, server: server, conns: make(map[net.Conn]bool)}
	t.Cleanup(func() { _ = l.Close(); p.cut() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// add adds a rule.
func (p *proxy) add(what, text string) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &rule{text: text, what: what, fired: make(chan struct{}), let: make(chan struct{})}
	p.rules = append(p.rules, r)
	return r
}

// cut cuts all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) track(c net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c] = true; !open {
		delete(p.conns, c)
		_ = c.Close()
	}
}

// match returns the rule that a chunk fires, which is then over, or nil.
func (p *proxy) match(chunk []byte) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.rules {
		if bytes.Contains(chunk, []byte(r.text)) {
			p.rules = append(p.rules[:i:i], p.rules[i+1:]...)
			return r
		}
	}
	return nil
}

func (p *proxy) serve(client net.Conn) {
	p.track(client, true)
	defer p.track(client, false)
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	p.track(server, true)
	defer p.track(server, false)
	var mu sync.Mutex
	var lost *rule // whose answer gets lost
	go func() {
		defer p.track(client, false)
		p.copy(client, server, func(chunk []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if lost != nil && bytes.Contains(chunk, []byte(`"seq":`)) {
				close(lost.fired)
				return false
			}
			return true
		})
	}()
	p.copy(server, client, func(chunk []byte) bool {
		r := p.match(chunk)
		if r == nil {
			return true
		}
		switch r.what {
		case cutAfter:
			mu.Lock()
			defer mu.Unlock()
			lost = r
			return true
		case cutBefore:
			close(r.fired)
			return false
		}
		close(r.fired)
		<-r.let
		return true
	})
}

// copy passes chunks on while pass allows it.
func (p *proxy) copy(to io.Writer, from io.Reader, pass func(chunk []byte) bool) {
	chunk := make([]byte, 1<<16)
	for {
		n, err := from.Read(chunk)
		if err != nil || !pass(chunk[:n]) {
			return
		}
		if _, err := to.Write(chunk[:n]); err != nil {
			return
		}
	}
}
