package redisdriver_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// log holds the log lines of go-redis. It is set before the tests run: go-redis reads its logger
// without a lock.
var log heard

func TestMain(m *testing.M) {
	redis.SetLogger(&log)
	os.Exit(m.Run())
}

// heard is a logger that keeps its lines, and writes them to standard error as go-redis does.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Printf(_ context.Context, format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	fmt.Fprintln(os.Stderr, "redis:", line)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
}

func (h *heard) about(what string) (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		if strings.Contains(line, what) {
			lines = append(lines, line)
		}
	}
	return lines
}

// lateConn returns the answer to a PING when it is closed, or a moment later if it is not.
type lateConn struct {
	net.Conn
	pinged chan<- struct{}
	late   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *lateConn) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToUpper(b), []byte("\r\nPING\r\n")) {
		c.late.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.late.CompareAndSwap(true, false) {
		c.pinged <- struct{}{}
		select {
		case <-c.closed:
		case <-time.After(100 * time.Millisecond):
		}
	}
	return n, err
}

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestDriver_CloseWhileTheRenewalsClientConnectsMakesNoNoise(t *testing.T) {
	before := len(log.about("Unexpected"))
	pinged := make(chan struct{}, 1)
	s := redistest.Start(t)
	d := over(t, application(t, &redis.Options{Addr: s.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &lateConn{Conn: nc, pinged: pinged, closed: make(chan struct{})}, err
	}}))
	if reply := acquire(t, d, request("k", "a")); reply.State != driver.Granted {
		t.Fatalf("acquire: %v", reply.State)
	}
	<-pinged
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if lines := log.about("Unexpected")[before:]; len(lines) != 0 {
		t.Errorf("go-redis logged %q", lines)
	}
}
