package chaos

import (
	"net"
	"net/rpc"
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

// Write is a write to a register.
type Write struct {
	Key, Who string
	Token    int64
}

// Write is a [Crowd.Register], as a method for package rpc.
func (m *Memory) Write(w Write, accepted *bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[string]int64)
	}
	m.last = w.Who
	if *accepted = w.Token >= m.seen[w.Key]; *accepted {
		m.seen[w.Key] = w.Token
	}
	return nil
}

// Last returns the name of the last writer, which most likely holds a lock now.
func (m *Memory) Last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// desk serves a register to other processes over a socket. A connection ends with its process.
type desk struct {
	Memory
	dir      string
	listener net.Listener
}

func openDesk() (*desk, error) {
	dir, err := os.MkdirTemp("", "chaos") // short: the path of a socket is bounded
	if err != nil {
		return nil, err
	}
	d := &desk{dir: dir}
	if d.listener, err = net.Listen("unix", d.path()); err != nil {
		return nil, err
	}
	server := rpc.NewServer()
	if err := server.Register(&d.Memory); err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := d.listener.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	return d, nil
}

func (d *desk) path() string { return filepath.Join(d.dir, "register") }

func (d *desk) close() {
	_ = d.listener.Close()
	_ = os.RemoveAll(d.dir)
}

// dialRegister returns the method Write of a register behind a socket.
func dialRegister(path string) (func(w Write, accepted *bool) error, error) {
	client, err := rpc.Dial("unix", path)
	return func(w Write, accepted *bool) error { return client.Call("Memory.Write", w, accepted) }, err
}
