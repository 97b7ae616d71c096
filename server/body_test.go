package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/leasehold-go/leasehold/memdriver"
)

// TestServer_H5_ABodyIsReadByItselfWhateverCameBefore sends bodies of all kinds one
// after the other, since what reads them is used again.
func TestServer_H5_ABodyIsReadByItselfWhateverCameBefore(t *testing.T) {
	addr := listen(t, memdriver.New())
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
			url := fmt.Sprintf("http://%s/v1/locks/%d-%d", addr, round, i)
			if status, text := ask(t, http.MethodPost, url, row.body); status != row.want {
				t.Errorf("%q is answered %d, want %d: %s", row.body, status, row.want, text)
			}
		}
	}
}
