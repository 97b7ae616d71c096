package express

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// tape is a connection from which prepared requests are read, one at a time.
type tape struct {
	net.Conn
	requests [][]byte
	next     int
	left     int
}

func (t *tape) Read(b []byte) (int, error) {
	if t.left == 0 {
		return 0, io.EOF
	}
	t.left--
	t.next++
	return copy(b, t.requests[t.next%len(t.requests)]), nil
}

func (t *tape) Write(b []byte) (int, error)      { return len(b), nil }
func (t *tape) Close() error                     { return nil }
func (t *tape) SetReadDeadline(time.Time) error  { return nil }
func (t *tape) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkPair is what two requests cost beside the system calls and the handler.
func BenchmarkPair(b *testing.B) {
	s := &Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Request-Id"] = []string{"01234567890123456789012345678901"}
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header()["Content-Type"] = []string{"application/json"}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"leaseId":"01234567890123456789012345","state":"granted","token":1234567890123456,"ttlMs":30000}`)
		}),
		Takes: func(string, string) bool { return true },
		Rest:  &http.Server{IdleTimeout: time.Minute, ReadHeaderTimeout: time.Minute},
	}
	b.ReportAllocs()
	t := &tape{left: 2 * b.N, requests: [][]byte{
		[]byte("POST /v1/locks/orders%2F42 HTTP/1.1\r\nHost: 127.0.0.1:8700\r\nContent-Type: application/json\r\nContent-Length: 54\r\n\r\n" + `{"leaseId":"01234567890123456789012345","ttlMs": 30000}`[:54]),
		[]byte("DELETE /v1/locks/orders%2F42/leases/01234567890123456789012345 HTTP/1.1\r\nHost: 127.0.0.1:8700\r\n\r\n"),
	}}
	c := &conn{Conn: t, front: &front{s: s}, ctx: b.Context(), remote: "127.0.0.1:1", now: time.Now()}
	c.state.Store(busy)
	b.ResetTimer()
	c.serve()
	if t.left > 0 {
		b.Fatal("a request was not served")
	}
}
