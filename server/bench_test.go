package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// blank is a connection that takes everything.
type blank struct{ header http.Header }

func (b *blank) Header() http.Header         { return b.header }
func (b *blank) Write(p []byte) (int, error) { return len(p), nil }
func (b *blank) WriteHeader(int)             {}

// BenchmarkPair is what the service does for an acquire and its release, without
// what net/http and the store do.
func BenchmarkPair(b *testing.B) {
	s, err := server.New(memdriver.New())
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
