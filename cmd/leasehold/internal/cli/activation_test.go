//go:build linux

package cli_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// activate starts a service as systemd does, with sockets as its descriptors from 3 on.
func activate(t *testing.T, sockets []*os.File, args ...string) *process {
	t.Helper()
	return launch(t, func(cmd *exec.Cmd) {
		script := `LISTEN_PID=$$ LISTEN_FDS=$0 exec "$@"`
		cmd.Args = append([]string{"sh", "-c", script, strconv.Itoa(len(sockets)), cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.ExtraFiles = "/bin/sh", sockets
	}, append([]string{"serve"}, args...)...)
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

	p := activate(t, []*os.File{fileOf(t, first), fileOf(t, second)}, "--store", "memory:")
	awaitState(t, states, "READY=1")
	overPath := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for client, url := range map[*http.Client]string{http.DefaultClient: "http://" + first.Addr().String(), overPath: "http://service"} {
		eventually(t, func() bool {
			res, err := client.Get(url + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			// The service answers before its subscription to the store is ready.
			if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
				t.Fatalf("%s answers %s", url, res.Status)
			}
			return res.StatusCode == http.StatusOK
		}, url)
	}
	p.signal(syscall.SIGTERM)
	awaitState(t, states, "STOPPING=1")
	p.wantCode(0)
}

// awaitState waits for a notification of a service to systemd.
func awaitState(t *testing.T, states net.PacketConn, want string) {
	t.Helper()
	if err := states.SetReadDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	n, _, err := states.ReadFrom(text)
	if err != nil || string(text[:n]) != want {
		t.Fatalf("systemd received %q, %v, want %q", text[:n], err, want)
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
		{everywhere, nil, "can be reached from other machines"},
		{here, []string{"--listen", "127.0.0.1:0"}, "the socket unit sets the addresses"},
	} {
		p := activate(t, []*os.File{fileOf(t, row.socket)}, append([]string{"--store", "memory:"}, row.args...)...)
		p.wantCode(64)
		p.wantSaid(row.says)
	}
}
