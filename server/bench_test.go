package server_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server"
)

// blank is a response writer that drops the body.
type blank struct {
	header http.Header
	status int
}

func (b *blank) Header() http.Header             { return b.header }
func (b *blank) Write(p []byte) (int, error)     { return len(p), nil }
func (b *blank) WriteHeader(status int)          { b.status = status }
func (b *blank) SetReadDeadline(time.Time) error { return nil }

// arrived is a body that has arrived completely.
type arrived struct{ bytes.Reader }

func (*arrived) Close() error { return nil }

// instant is a store that grants and releases every lease at once.
type instant struct{}

func (instant) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{State: driver.Granted, Token: 1 << 50, Holds: 1, Clock: time.Hour}, nil
}

func (instant) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

func (instant) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

func (instant) Close() error { return nil }

// request is a request that can be sent repeatedly.
type request struct {
	r      *http.Request
	text   []byte
	body   arrived
	answer blank
	want   int
}

func newRequest(method, path, body string, want int) *request {
	q := &request{
		r: httptest.NewRequest(method, path, http.NoBody), text: []byte(body), want: want,
		answer: blank{header: make(http.Header)},
	}
	if body != "" {
		q.r.Body, q.r.ContentLength = &q.body, int64(len(body))
		q.r.Header.Set("Content-Type", "application/json")
	}
	return q
}

func (q *request) send(b *testing.B, s *server.Server) {
	q.body.Reset(q.text)
	clear(q.answer.header)
	if s.ServeHTTP(&q.answer, q.r); q.answer.status != q.want {
		b.Fatalf("%s %s is answered with %d", q.r.Method, q.r.URL.Path, q.answer.status)
	}
}

// BenchmarkPair measures the service for an acquire and its release, without net/http and the
// store: with requests as curl sends them, and as the library does.
func BenchmarkPair(b *testing.B) {
	const lock = "/v1/locks/orders%2F42"
	for _, row := range []struct {
		name string
		all  []*request
	}{
		{"plain", []*request{
			newRequest("POST", lock, `{"leaseId":"2JDVBYNBZ2BBO5MAZGDQW3QFUA","ttlMs":30000}`, http.StatusCreated),
			newRequest("DELETE", lock+"/leases/2JDVBYNBZ2BBO5MAZGDQW3QFUA", "", http.StatusNoContent),
		}},
		{"library", []*request{
			newRequest("POST", lock, `{"leaseId":"2JDVBYNBZ2BBO5MAZGDQW3QFUA","mode":"exclusive","policy":"fifo","ttlMs":30000,"ticketMs":0,"owner":"web-1/4711","since":"2026-01-02T03:04:05.678901234Z"}`, http.StatusCreated),
			newRequest("DELETE", lock+"/leases/2JDVBYNBZ2BBO5MAZGDQW3QFUA?forbidMs=60000&keepMs=0", "", http.StatusNoContent),
		}},
		{"renewal", []*request{
			newRequest("PUT", lock+"/leases/2JDVBYNBZ2BBO5MAZGDQW3QFUA", `{"ttlMs":30000}`, http.StatusOK),
		}},
	} {
		b.Run(row.name, func(b *testing.B) {
			s, err := server.New(instant{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				for _, q := range row.all {
					q.send(b, s)
				}
			}
		})
	}
}
