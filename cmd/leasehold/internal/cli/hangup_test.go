//go:build linux || darwin

package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// startRotated starts a service whose logs are rotated in an unlikely moment.
func startRotated(t *testing.T, env ...string) *process {
	t.Helper()
	return launch(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), env...) }, "serve", "--listen", "127.0.0.1:0")
}

// TestServe_AHangupBeforeItServesEndsNothing sends one while the service reads the URL of
// its store.
func TestServe_AHangupBeforeItServesEndsNothing(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "url")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r := startRotated(t, "LEASEHOLD_STORE=", "LEASEHOLD_STORE_FILE="+pipe)
	stuck := time.AfterFunc(bound, func() {
		f, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // somebody has to open it
		if err == nil {
			f.Close()
		}
	})
	defer stuck.Stop()
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // it reads from here on
	if err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	r.awaitSaid("files read again")
	_, err = writer.WriteString("memory:\n")
	if bad := writer.Close(); err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	r.serves()
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
}

// TestServe_AHangupAfterItsEndEndsNothing sends one while the service, which has ended,
// sends its last spans.
func TestServe_AHangupAfterItsEndEndsNothing(t *testing.T) {
	t.Parallel()
	sending, signalled := make(chan struct{}, 1), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		sending <- struct{}{}
		<-signalled
	}))
	defer collector.Close()
	r := startRotated(t, "LEASEHOLD_STORE=memory:", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
		"OTEL_BSP_SCHEDULE_DELAY=600000") // at the end only
	res, err := http.Get(r.serves() + "/v1/locks/demo")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	r.signal(syscall.SIGTERM)
	select {
	case <-sending:
	case <-time.After(bound):
		t.Error("it sends no spans")
	}
	r.signal(syscall.SIGHUP)
	close(signalled)
	r.wantCode(0)
	r.wantSaid("msg=ended")
}
