package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server"
)

// blank is a connection that takes everything.
type blank struct{ header http.Header }

func (b *blank) Header() http.Header         { return b.header }
func (b *blank) Write(p []byte) (int, error) { return len(p), nil }
func (b *blank) WriteHeader(int)             {}

// instant is a store that grants and frees whatever it is asked for.
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

// BenchmarkPair is what the service does for an acquire and its release, without
// what net/http and the store do.
func BenchmarkPair(b *testing.B) {
	s, err := server.New(instant{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	take := httptest.NewRequest(http.MethodPost, "/v1/locks/orders%2F42", nil)
	give := httptest.NewRequest(http.MethodDelete, "/v1/locks/orders%2F42/leases/x", nil)
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprint("lease", n)
		r := *take
		r.Body = io.NopCloser(strings.NewReader(`{"leaseId":"` + id + `","ttlMs":30000}`))
		s.ServeHTTP(&blank{make(http.Header)}, &r)
		d, u := *give, *give.URL
		u.Path, u.RawPath = "/v1/locks/orders/42/leases/"+id, "/v1/locks/orders%2F42/leases/"+id
		d.URL = &u
		s.ServeHTTP(&blank{make(http.Header)}, &d)
	}
}
