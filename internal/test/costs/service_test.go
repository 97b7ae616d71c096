package costs_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/server"
)

// TestAllocations_OfRequestsToTheService counts the allocations of the handler for an acquire, a
// release and a renewal, without the connection and the store. The bounds are measured.
func TestAllocations_OfRequestsToTheService(t *testing.T) {
	skip.Racing(t, "the race detector allocates as well")
	s, err := server.New(yes{})
	noErr(t, err)
	t.Cleanup(func() { _ = s.Close() })
	for _, row := range []struct {
		method, path, body string
		status             int
		most               float64
	}{
		{http.MethodPost, "/v1/locks/orders%2F42", `{"leaseId":"a1","ttlMs":30000}`, http.StatusCreated, 32}, // one is the name of the visit
		{http.MethodDelete, "/v1/locks/orders%2F42/leases/a1", "", http.StatusNoContent, 14},
		{http.MethodPut, "/v1/locks/orders%2F42/leases/a1", `{"ttlMs":30000}`, http.StatusOK, 31},
	} {
		t.Run(row.method, func(t *testing.T) {
			r := httptest.NewRequest(row.method, row.path, http.NoBody)
			w := &wire{header: make(http.Header)}
			var body text
			if row.body != "" {
				r.Body, r.ContentLength = &body, int64(len(row.body))
			}
			got := testing.AllocsPerRun(500, func() {
				body.Reset([]byte(row.body))
				clear(w.header)
				s.ServeHTTP(w, r)
			})
			t.Logf("%v allocations", got)
			if w.status != row.status {
				t.Errorf("answered %d, want %d", w.status, row.status)
			}
			if got > row.most {
				t.Errorf("%s allocates %v times, want %v at most", row.method, got, row.most)
			}
		})
	}
}

// wire is a connection that accepts all writes.
type wire struct {
	header http.Header
	status int
}

func (w *wire) Header() http.Header             { return w.header }
func (w *wire) Write(p []byte) (int, error)     { return len(p), nil }
func (w *wire) WriteHeader(status int)          { w.status = status }
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// text is a body that can be sent again.
type text struct{ bytes.Reader }

func (*text) Close() error { return nil }

var _ io.ReadCloser = (*text)(nil)

// yes is a store that grants and frees every lock.
type yes struct{}

func (yes) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{State: driver.Granted, Token: 1 << 50, Holds: 1, Clock: time.Hour}, nil
}

func (yes) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

func (yes) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

func (yes) Close() error { return nil }
