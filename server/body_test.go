package server_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// arrived is a body that has arrived completely.
type arrived struct{ bytes.Reader }

func (*arrived) Close() error { return nil }

// TestServer_H5_ALargeBodyIsRefusedAlsoWhereItHasArrived gives the handler a body as
// a server does that has read it.
func TestServer_H5_ALargeBodyIsRefusedAlsoWhereItHasArrived(t *testing.T) {
	const most = 1 << 10
	s := open(t, memdriver.New(), server.WithMaxBody(most))
	for size, want := range map[int]int{most: http.StatusCreated, most + 1: http.StatusRequestEntityTooLarge} {
		r := httptest.NewRequest(http.MethodPost, "/v1/locks/k", nil)
		body := new(arrived)
		body.Reset([]byte(strings.Repeat(" ", size)))
		r.Body = body
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d bytes are answered %d, want %d: %s", size, w.Code, want, w.Body)
		}
		if r.Body != body {
			t.Errorf("the request of the caller was changed")
		}
	}
}
