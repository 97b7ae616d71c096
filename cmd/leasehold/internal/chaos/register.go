package chaos

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Memory is a register in this process. It checks fencing tokens: it refuses a write
// with a token smaller than an earlier one.
type Memory struct {
	mu   sync.Mutex
	seen map[string]int64
	last string
}

// Write implements [Register].
func (m *Memory) Write(key, who string, token int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[string]int64)
	}
	m.last = who
	if token < m.seen[key] {
		return false, nil
	}
	m.seen[key] = token
	return true, nil
}

// Last returns the name of the last writer, which most likely holds a lock now.
func (m *Memory) Last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// desk serves a register to other processes over a socket.
type desk struct {
	Memory
	dir      string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func openDesk() (*desk, error) {
	dir, err := os.MkdirTemp("", "chaos") // short: the path of a socket is bounded
	if err != nil {
		return nil, err
	}
	d := &desk{dir: dir, conns: make(map[net.Conn]struct{})}
	if d.listener, err = net.Listen("unix", d.path()); err != nil {
		return nil, err
	}
	d.running.Go(func() {
		for {
			conn, err := d.listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.conns[conn] = struct{}{}
			d.mu.Unlock()
			d.running.Go(func() { d.serve(conn) })
		}
	})
	return d, nil
}

func (d *desk) path() string { return filepath.Join(d.dir, "register") }

// serve answers "key who token" with "1" or "0".
func (d *desk) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewScanner(conn); in.Scan(); {
		var key, who string
		var token int64
		if _, err := fmt.Sscan(in.Text(), &key, &who, &token); err != nil {
			return
		}
		accepted, _ := d.Write(key, who, token)
		word := "0\n"
		if accepted {
			word = "1\n"
		}
		if _, err := conn.Write([]byte(word)); err != nil {
			return
		}
	}
}

func (d *desk) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	for conn := range d.conns {
		_ = conn.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
	_ = os.RemoveAll(d.dir)
}

// remote is a register behind a socket.
type remote struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
}

func dialRegister(path string) (*remote, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &remote{conn: conn, in: bufio.NewReader(conn)}, nil
}

// Write implements [Register].
func (r *remote) Write(key, who string, token int64) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := fmt.Fprintln(r.conn, key, who, token); err != nil {
		return false, err
	}
	word, err := r.in.ReadString('\n')
	return word == "1\n", err
}
