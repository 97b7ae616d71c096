package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// lag delays each answer of a store by a second.
func lag(ctx context.Context, _ call) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closing is the service's side of a connection whose client has closed its own side after one
// request. If the client is gone, no answer reaches it.
type closing struct {
	io.Reader
	gone bool

	mu     sync.Mutex
	answer strings.Builder
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Write(p []byte) (int, error) {
	if c.gone {
		return 0, syscall.ECONNRESET
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer.Write(p)
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *closing) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *closing) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *closing) SetDeadline(time.Time) error      { return nil }
func (c *closing) SetReadDeadline(time.Time) error  { return nil }
func (c *closing) SetWriteDeadline(time.Time) error { return nil }

// conns is a listener with connections.
type conns chan net.Conn

func (l conns) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l conns) Close() error   { return nil }
func (l conns) Addr() net.Addr { return &net.TCPAddr{} }

// halfClosed sends one request by a connection, closes the client's side, and returns the
// status of the answer, 0 for none.
func (l conns) halfClosed(t *testing.T, gone bool, method, path, body string) int {
	t.Helper()
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	c := &closing{Reader: strings.NewReader(text), gone: gone, closed: make(chan struct{})}
	l <- c
	<-c.closed
	c.mu.Lock()
	defer c.mu.Unlock()
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(c.answer.String())), nil)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// A client such as `nc -N` closes its side when it has sent its request, and reads the answer.
func TestHalfClosed_WhatDoesNotWaitIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		s := open(t, before(store, lag))
		l := make(conns)
		go func() { _ = s.Serve(l, nil) }()
		for _, step := range []struct {
			method, path, body string
			status             int
		}{
			{"POST", "/v1/locks/k", `{"leaseId":"a"}`, 201},
			{"POST", "/v1/locks/k", `{"leaseId":"b"}`, 409},
			{"POST", "/v1/locks/k", `{"leaseId":"w","waitMs":60000}`, 0}, // counts as gone
			{"PUT", "/v1/locks/k/leases/a", `{}`, 200},
			{"GET", "/v1/locks/k", "", 200},
			{"GET", "/v1/locks/k?waiters=false", "", 200},
			{"GET", "/v1/locks", "", 200},
			{"POST", "/v1/locks/k:break", `{"leaseId":"a","reason":"x"}`, 200},
			{"POST", "/v1/locks", `{"key":"k","leaseId":"c"}`, 201},
			{"DELETE", "/v1/locks/k/leases/c", "", 204},
		} {
			if status := l.halfClosed(t, false, step.method, step.path, step.body); status != step.status {
				t.Errorf("%s %s %s: %d, want %d", step.method, step.path, step.body, status, step.status)
			}
			time.Sleep(5 * time.Second)
			if snap, err := store.Inspect(t.Context(), "k"); err != nil || len(snap.Waiters) > 0 {
				t.Errorf("%s %s %s: %+v, %v", step.method, step.path, step.body, snap, err)
			}
		}
		close(l)
	})
}

func TestHalfClosed_AGrantThatReachesNobodyIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		s := open(t, before(store, lag))
		l := make(conns)
		go func() { _ = s.Serve(l, nil) }()
		granted := make(chan bool, 1)
		time.AfterFunc(1500*time.Millisecond, func() { // between the grant and its release
			snap, err := store.Inspect(t.Context(), "k")
			granted <- err == nil && len(snap.Holders) == 1
		})
		l.halfClosed(t, true, "POST", "/v1/locks/k", `{"leaseId":"a"}`)
		time.Sleep(5 * time.Second)
		if !<-granted {
			t.Error("the lock was not granted")
		}
		if snap, err := store.Inspect(t.Context(), "k"); err != nil || len(snap.Holders) > 0 {
			t.Errorf("%+v, %v", snap, err)
		}
		close(l)
	})
}
