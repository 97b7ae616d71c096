package postgrestest

import (
	"bytes"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// Proxy forwards between a client and a server, and cuts connections. It can read the text of
// a request only if the client sends it as text, with default_query_exec_mode=exec.
type Proxy struct {
	listener net.Listener
	upstream string
	server   *Server
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
	l, err := redistest.Listen()
	noError(tb, err)
	u, err := url.Parse(s.URL())
	noError(tb, err)
	p := &Proxy{listener: l, upstream: u.Host, server: s, stranded: make(chan struct{}), ended: make(chan struct{})}
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

// URL returns the address of the database that every server has, through the proxy.
func (p *Proxy) URL() string {
	return strings.Replace(p.server.URL(), p.upstream, p.listener.Addr().String(), 1)
}

// CutBefore cuts the next connection that sends a request with this text, before the
// server receives it.
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
	server, err := net.Dial("tcp", p.upstream)
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

// pump forwards until a connection ends, or pass returns false.
func (l *link) pump(to, from net.Conn, pass func(data []byte) bool) {
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
		if !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) request(data []byte) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.cuts, func(c *Cut) bool { return bytes.Contains(data, c.text) })
	if i < 0 {
		return true
	}
	c := p.cuts[i]
	p.cuts = slices.Delete(p.cuts, i, i+1)
	if !c.after {
		close(c.fired)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = c
	return true
}

func (l *link) answer([]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		return true
	}
	close(l.next.fired)
	return false
}
