package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// doubtful is a store that grants, does not say so, and is certain of something
// else when it is asked again.
type doubtful struct {
	driver.Driver
	then  error
	asked int
}

func (d *doubtful) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if d.asked++; d.asked > 1 {
		return driver.Reply{}, d.then
	}
	if _, err := d.Driver.Acquire(ctx, req); err != nil {
		return driver.Reply{}, err
	}
	return driver.Reply{}, errors.New("connection reset")
}

// TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered: what the store says of
// the second try is not true of the first.
func TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered(t *testing.T) {
	for _, then := range []error{driver.ErrUnavailable, driver.ErrInvalid, driver.ErrMismatch, driver.ErrClosed, errors.ErrUnsupported} {
		s, err := server.New(&doubtful{Driver: memdriver.New(), then: then})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/locks/k", nil))
		if w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), server.Unknown.Type()) {
			t.Errorf("%v: %d %s, want the outcome to be unknown", then, w.Code, w.Body)
		}
		_ = s.Close()
	}
}
