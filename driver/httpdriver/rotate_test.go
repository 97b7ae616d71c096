package httpdriver_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// The service may accept the next token before the file has it: this refusal ends with time.
// The refusal of a token that was never accepted is permanent.
func TestOpen_TokenFileIsReadForEachRequest(t *testing.T) {
	var accepted atomic.Value
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+accepted.Load().(string) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"type":"` + wire.ProblemTypes + `unauthenticated","title":"x","status":401}`))
			return
		}
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		noErr(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	}
	list := func(d *httpdriver.Driver) error {
		_, _, err := d.List(t.Context(), "", "")
		return err
	}
	write("one")
	accepted.Store("one")
	d := open(t, url+"?token_file="+file)
	noErr(t, list(d))
	accepted.Store("two")
	if err := list(d); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("the service is ahead of the file: %v, want a temporary error", err)
	}
	if err := list(open(t, url+"?token_file="+file)); !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("a wrong token: %v, want ErrPermanent", err)
	}
	write("two")
	noErr(t, list(d))
}

// A shell hands a token over by a pipe, as in token-file=<(command).
func TestOpen_TokenOfAPipeIsReadOnce(t *testing.T) {
	var refused atomic.Bool
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer one" {
			refused.Store(true)
		}
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	d := open(t, url+"?token_file="+piped(t, "one\n"))
	for range 2 {
		if _, _, err := d.List(t.Context(), "", ""); err != nil || refused.Load() {
			t.Errorf("%v, refused: %v", err, refused.Load())
		}
	}
}

// piped returns the name of the end of a pipe from which a text can be read once.
func piped(t *testing.T, text string) string {
	r, w, err := os.Pipe()
	noErr(t, err)
	t.Cleanup(func() { _ = r.Close() })
	name := fmt.Sprintf("/dev/fd/%d", r.Fd())
	_, err = os.Stat(name)
	skip.Unless(t, err == nil, "pipes that have names")
	_, _ = w.WriteString(text)
	_ = w.Close()
	return name
}
