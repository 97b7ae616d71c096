package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// far is a proxy that delays requests to a server, as a
// network between them does. It does not delay replies.
type far struct {
	listener net.Listener
	server   string
	delay    time.Duration

	mu    sync.Mutex
	conns []net.Conn
}

func newFar(server string, delay time.Duration) (*far, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &far{listener: l, server: server, delay: delay}
	go f.accept()
	return f, nil
}

func (f *far) addr() string { return f.listener.Addr().String() }

func (f *far) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.mu.Lock()
		f.conns = append(f.conns, client, server)
		f.mu.Unlock()
		go relay(client, server, f.delay)
		go func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		}()
	}
}

// relay passes on the data of one side, each piece delayed.
func relay(from, to net.Conn, delay time.Duration) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close()
			}
		}
	}()
	defer close(pieces)
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			pieces <- piece{time.Now().Add(delay), append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			return
		}
	}
}

func (f *far) close() {
	_ = f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
}
