//go:build linux

package cli_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// activate starts a service as systemd does, with sockets as its descriptors from 3 on,
// and returns its process and its standard error.
func activate(t *testing.T, sockets []*os.File, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	script := `LISTEN_PID=$$ LISTEN_FDS=$0 exec leasehold serve "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, string(rune('0' + len(sockets)))}, args...)...) //nolint:noctx // it is ended in order, below
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(command(t))+":"+os.Getenv("PATH"))
	cmd.ExtraFiles = sockets
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(2*bound, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { end.Stop(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(stderr)
}

// fileOf returns a listening socket as a file.
func fileOf(t *testing.T, l net.Listener) *os.File {
	t.Helper()
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); l.Close() })
	return f
}

func TestServe_TakesTheSocketsOfSystemdAndSaysWhenItIsReady(t *testing.T) {
	dir := t.TempDir()
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	second, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	states, err := net.ListenPacket("unixgram", filepath.Join(dir, "notify"))
	if err != nil {
		t.Fatal(err)
	}
	defer states.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))

	cmd, lines := activate(t, []*os.File{fileOf(t, first), fileOf(t, second)}, "--store", "memory:")
	go func() {
		for lines.Scan() { // or the service would wait for its reader
		}
	}()
	awaitState(t, states, "READY=1")
	overPath := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for client, url := range map[*http.Client]string{http.DefaultClient: "http://" + first.Addr().String(), overPath: "http://service"} {
		for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
			res, err := client.Get(url + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
			// It serves before it listens to the store for whose turn it is.
			if res.StatusCode != http.StatusServiceUnavailable || time.Now().After(end) {
				t.Fatalf("%s answers %s", url, res.Status)
			}
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	awaitState(t, states, "STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// awaitState waits for what a service tells systemd.
func awaitState(t *testing.T, states net.PacketConn, want string) {
	t.Helper()
	if err := states.SetReadDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	n, _, err := states.ReadFrom(text)
	if err != nil || string(text[:n]) != want {
		t.Fatalf("systemd is told %q, %v, want %q", text[:n], err, want)
	}
}

func TestServe_RefusesASocketOfSystemdThatEverybodyCanReach(t *testing.T) {
	everywhere, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		socket net.Listener
		args   []string
		says   string
	}{
		{everywhere, nil, "can be reached from elsewhere"},
		{here, []string{"--listen", "127.0.0.1:0"}, "the socket unit says where to listen"},
	} {
		cmd, lines := activate(t, []*os.File{fileOf(t, row.socket)}, append([]string{"--store", "memory:"}, row.args...)...)
		var text strings.Builder
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 64 || !strings.Contains(text.String(), row.says) {
			t.Errorf("%q: code %d, want 64 and %q: %s", row.args, code, row.says, text.String())
		}
	}
}
