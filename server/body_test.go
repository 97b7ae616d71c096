package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// TestServer_H5_ABodyIsReadByItselfWhateverCameBefore sends bodies of all kinds one after the
// other, because one body must not affect the next.
func TestServer_H5_ABodyIsReadByItselfWhateverCameBefore(t *testing.T) {
	base := listenInMemory(t, memdriver.New())
	for round := range 3 {
		for i, row := range []struct {
			body string
			want int
		}{
			{`null`, http.StatusCreated},
			{" {\"leaseId\":\"a\"} \r\n", http.StatusCreated},
			{`{"leaseId":"b"} {"leaseId":"c"}`, http.StatusBadRequest},
			{`{"leaseId":"b"`, http.StatusBadRequest},
			{``, http.StatusCreated},
			{"\n", http.StatusCreated},
			{`{"leaseid":1}`, http.StatusBadRequest},
			{`{"leaseId":"b"}]`, http.StatusBadRequest},
			{`{}`, http.StatusCreated},
		} {
			url := fmt.Sprintf("%s/v1/locks/%d-%d", base, round, i)
			if status, text := ask(t, http.MethodPost, url, row.body); status != row.want {
				t.Errorf("%q is answered %d, want %d: %s", row.body, status, row.want, text)
			}
		}
	}
}

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
