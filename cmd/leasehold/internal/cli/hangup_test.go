//go:build linux || darwin

package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestServe_AHangupAfterItsEndEndsNothing sends SIGHUP after the end of the service, while the
// process sends its last spans.
func TestServe_AHangupAfterItsEndEndsNothing(t *testing.T) {
	t.Parallel()
	sending, signalled := make(chan struct{}, 1), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		sending <- struct{}{}
		<-signalled
	}))
	defer collector.Close()
	r := launch(t, func(cmd *exec.Cmd) {
		// Spans are sent only at the end.
		cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_BSP_SCHEDULE_DELAY=600000")
	}, "serve", "--listen", "127.0.0.1:0", "--store", "memory:")
	res, err := http.Get(r.serves() + "/v1/locks/demo")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	r.signal(syscall.SIGTERM)
	select {
	case <-sending:
	case <-time.After(bound):
		t.Error("the service sends no spans")
	}
	r.signal(syscall.SIGHUP)
	close(signalled)
	r.wantCode(0)
	r.wantSaid("msg=ended")
}
