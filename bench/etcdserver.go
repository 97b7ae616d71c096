package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// etcdCommand makes this program an etcd server, in a process of its own, so that
// its computing and allocating is not counted for its clients.
const etcdCommand = "etcd-server"

// serveEtcdIfAsked runs an etcd server if the arguments ask for it, until standard
// input ends. asked reports whether they did.
func serveEtcdIfAsked() (asked bool, err error) {
	if len(os.Args) != 3 || os.Args[1] != etcdCommand {
		return false, nil
	}
	return true, serveEtcd(os.Args[2])
}

func serveEtcd(dir string) error {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "fatal"
	cfg.UnsafeNoFsync = true // Redis does not persist anything either
	client, err := freeURL()
	if err != nil {
		return err
	}
	peer, err := freeURL()
	if err != nil {
		return err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return err
	case <-time.After(30 * time.Second):
		return errors.New("etcd is not ready")
	}
	fmt.Println(client.String())
	_, err = io.Copy(io.Discard, os.Stdin) // then the process ends as it is: the data is not needed
	return err
}

func freeURL() (url.URL, error) {
	host, port, err := redistest.FreeAddress()
	return url.URL{Scheme: "http", Host: fmt.Sprintf("%s:%d", host, port)}, err
}

// etcdServer is one node, without fsync.
type etcdServer struct {
	addr string
	cmd  *exec.Cmd
	stop io.Closer
	dir  string
}

func startEtcd() (*etcdServer, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-etcd-")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, etcdCommand, dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	s := &etcdServer{cmd: cmd, stop: stdin, dir: dir}
	s.addr, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.close()
		return nil, fmt.Errorf("etcd does not start: %w", err)
	}
	s.addr = strings.TrimSpace(s.addr)
	return s, nil
}

func (s *etcdServer) close() {
	_ = s.stop.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	timer.Stop()
	_ = os.RemoveAll(s.dir)
}

// load counts messages: a request, or a message in a stream to the server.
func (s *etcdServer) load(ctx context.Context) (load, error) {
	l := load{calls: make(map[string]float64), usec: make(map[string]float64)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.addr+"/metrics", nil)
	if err != nil {
		return l, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return l, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		var value float64
		name, text, _ := strings.Cut(lines.Text(), " ")
		if _, err := fmt.Sscan(text, &value); err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(name, "grpc_server_msg_received_total"):
			l.calls[etcdMessage] += value
		case name == "process_cpu_seconds_total":
			l.cpu = time.Duration(value * float64(time.Second))
		}
	}
	return l, lines.Err()
}
