//go:build linux || darwin

package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rotated is a service whose logs are rotated in an unlikely moment.
type rotated struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *output
}

func startRotated(t *testing.T, env ...string) *rotated {
	t.Helper()
	r := &rotated{t: t, said: new(output)}
	r.cmd = exec.CommandContext(t.Context(), command(t), "serve", "--listen", "127.0.0.1:0")
	r.cmd.Env = append(os.Environ(), env...)
	r.cmd.Stderr = r.said
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rotated) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Errorf("%v: %v", sig, err)
	}
}

func (r *rotated) wantInOrder() {
	r.t.Helper()
	stuck := time.AfterFunc(bound, func() { _ = r.cmd.Process.Kill() })
	defer stuck.Stop()
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("%v: %s", err, r.said)
	}
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
	awaitText(t, r.said, "files read again")
	_, err = writer.WriteString("memory:\n")
	if bad := writer.Close(); err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	awaitText(t, r.said, "msg=serving")
	r.signal(syscall.SIGTERM)
	r.wantInOrder()
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
	awaitText(t, r.said, "msg=serving")
	_, url, _ := strings.Cut(r.said.String(), "url=")
	url, _, _ = strings.Cut(url, " ")
	look, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/locks/demo", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(look)
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
	r.wantInOrder()
	if !strings.Contains(r.said.String(), "msg=ended") {
		t.Errorf("it said %s", r.said)
	}
}
