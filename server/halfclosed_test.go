package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
)

// lag delays each answer of a store by a second.
func lag(ctx context.Context, _ *message) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// halfClosed is a listener in memory whose clients close their side after one request.
type halfClosed struct{ *pipenet.Listener }

func (l halfClosed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &closing{Conn: c}, err
}

// closing is the service's side of a connection whose client has closed its own side after one
// request.
type closing struct {
	net.Conn
	request bool // has arrived
}

// Read implements [net.Conn]. The client sends its request by one write.
func (c *closing) Read(p []byte) (int, error) {
	if c.request {
		return 0, io.EOF
	}
	c.request = true
	return c.Conn.Read(p)
}

// call sends a request, and returns the status of the answer, 0 for none. If the client is gone, no
// answer reaches it.
func (l halfClosed) call(t *testing.T, gone bool, method, path, body string) int {
	t.Helper()
	c, err := l.Dial(t.Context(), "", "")
	noErr(t, err)
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body); err != nil {
		t.Fatal(err)
	}
	if gone {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
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
		l := halfClosed{pipenet.Listen()}
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
			if status := l.call(t, false, step.method, step.path, step.body); status != step.status {
				t.Errorf("%s %s %s: %d, want %d", step.method, step.path, step.body, status, step.status)
			}
			time.Sleep(5 * time.Second)
			if snap, err := store.Inspect(t.Context(), "k"); err != nil || len(snap.Waiters) > 0 {
				t.Errorf("%s %s %s: %+v, %v", step.method, step.path, step.body, snap, err)
			}
		}
	})
}

func TestHalfClosed_AGrantThatReachesNobodyIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		s := open(t, before(store, lag))
		l := halfClosed{pipenet.Listen()}
		go func() { _ = s.Serve(l, nil) }()
		granted := make(chan bool, 1)
		time.AfterFunc(1500*time.Millisecond, func() { // between the grant and its release
			snap, err := store.Inspect(t.Context(), "k")
			granted <- err == nil && len(snap.Holders) == 1
		})
		l.call(t, true, "POST", "/v1/locks/k", `{"leaseId":"a"}`)
		time.Sleep(5 * time.Second)
		if !<-granted {
			t.Error("the lock was not granted")
		}
		if snap, err := store.Inspect(t.Context(), "k"); err != nil || len(snap.Holders) > 0 {
			t.Errorf("%+v, %v", snap, err)
		}
	})
}
