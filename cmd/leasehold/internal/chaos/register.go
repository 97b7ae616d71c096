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

// desk serves a register to other processes over a socket. A connection ends with its process.
type desk struct {
	Memory
	dir      string
	listener net.Listener
}

// Write is a write to the register, as it is sent to a desk.
type Write struct {
	Key, Who string
	Token    int64
}

// Desk has the methods of a desk that other processes call.
type Desk struct{ memory *Memory }

// Write implements the method "Desk.Write" of package rpc.
func (d Desk) Write(w Write, accepted *bool) (err error) {
	*accepted, err = d.memory.Write(w.Key, w.Who, w.Token)
	return err
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
	if err := server.Register(Desk{&d.Memory}); err != nil {
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

// remote is a register behind a socket.
type remote struct{ client *rpc.Client }

func dialRegister(path string) (remote, error) {
	client, err := rpc.Dial("unix", path)
	return remote{client}, err
}

// Write implements [Register].
func (r remote) Write(key, who string, token int64) (accepted bool, err error) {
	err = r.client.Call("Desk.Write", Write{key, who, token}, &accepted)
	return accepted, err
}
