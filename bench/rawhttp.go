package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// rawHTTPClient calls the service at addr without an HTTP client: requests are
// prepared bytes, in which only the lease id changes, and of an answer only the
// status and length are read. A load generator works like this, so
// a figure shows the limit of the service and not the cost of a client. Releases
// have the query.
func rawHTTPClient(name string, k kind, addr, query string) contender {
	return contender{name: name, client: rueidisClient, kind: k, open: func(_ string, s settings) process {
		p := &rawProcess{addr: addr, query: query, more: fmt.Sprintf(`,"ttlMs":%d`, s.ttl.Milliseconds())}
		if s.waiters > 0 {
			p.more += `,"waitMs":30000`
		}
		return p
	}}
}

// rawProcess opens as many connections as are in use at a time, and keeps them.
type rawProcess struct {
	addr  string
	query string // of releases
	more  string // fields of an acquire, in addition to its lease id

	mu   sync.Mutex
	all  []*rawHTTP
	idle []*rawHTTP
}

// Lock implements [process]. It ends with the service's answer, even if the context
// ends earlier.
func (p *rawProcess) Lock(_ context.Context, key string) (held, error) {
	c, err := p.take()
	if err != nil {
		return nil, err
	}
	c.prepare(key)
	if err := c.ask(c.post, http.StatusCreated); err != nil {
		return nil, err
	}
	return c, nil
}

// Close implements [process].
func (p *rawProcess) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all {
		_ = c.conn.Close()
	}
}

func (p *rawProcess) take() (*rawHTTP, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c, nil
	}
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	c := &rawHTTP{p: p, conn: conn, in: bufio.NewReader(conn)}
	copy(c.id[:], rand.Text())
	p.all = append(p.all, c)
	return c, nil
}

func (p *rawProcess) put(c *rawHTTP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// rawHTTP is one connection.
type rawHTTP struct {
	p    *rawProcess
	conn net.Conn
	in   *bufio.Reader

	key           string // of the requests
	post, del     []byte
	postID, delID []byte // the position of the id in each
	id            [26]byte
	leases        uint64
}

// prepare makes the requests for a new lease of the key.
func (c *rawHTTP) prepare(key string) {
	if c.key != key {
		c.key = key
		body := fmt.Sprintf(`{"leaseId":"%s"%s}`, c.id[:], c.p.more)
		path := "/v1/locks/" + strings.ReplaceAll(url.PathEscape(key), ":", "%3A")
		c.post = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, c.p.addr, len(body), body)
		c.del = fmt.Appendf(nil, "DELETE %s/leases/%s%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, c.id[:], c.p.query, c.p.addr)
		c.postID = c.post[bytes.Index(c.post, c.id[:]):][:len(c.id)]
		c.delID = c.del[bytes.Index(c.del, c.id[:]):][:len(c.id)]
	}
	c.leases++
	const counted = 12 // digits; the remaining digits distinguish connections
	for i, n := len(c.id)-1, c.leases; i >= len(c.id)-counted; i, n = i-1, n/10 {
		c.id[i] = byte('0' + n%10)
	}
	copy(c.postID, c.id[:])
	copy(c.delID, c.id[:])
}

// Release implements [held].
func (c *rawHTTP) Release() error {
	defer c.p.put(c)
	return c.ask(c.del, http.StatusNoContent)
}

// ask sends a request, and checks the status of the answer.
func (c *rawHTTP) ask(request []byte, want int) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	status, size := 0, 0
	for {
		line, err := c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case status == 0 && bytes.HasPrefix(line, version):
			status = number(line[len(version):])
		case status == 0:
			return fmt.Errorf("not an answer of the service: %s", line)
		case bytes.HasPrefix(line, lengthHeader):
			size = number(line[len(lengthHeader):])
		case len(line) == len("\r\n"):
			body, err := c.in.Peek(size)
			if err == nil && status != want {
				err = fmt.Errorf("the service answers %d instead of %d: %s", status, want, body)
			}
			_, _ = c.in.Discard(len(body))
			return err
		}
	}
}

var (
	version      = []byte("HTTP/1.1 ")
	lengthHeader = []byte("Content-Length: ")
)

// number parses the digits at the beginning of text.
func number(text []byte) (n int) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}
