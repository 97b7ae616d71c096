package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
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
	pid  int
}

// etcdServer starts etcd at the first call.
func (b *bench) etcdServer() *etcdServer {
	if b.etcd == nil {
		b.etcd = startEtcd(&b.harness)
	}
	return b.etcd
}

func startEtcd(h *harness) *etcdServer {
	self, err := os.Executable()
	h.must(err)
	cmd := exec.Command(self, etcdCommand, h.TempDir())
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // it ends with this process
	h.must(err)
	stdout, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	h.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	h.must(err)
	return &etcdServer{addr: strings.TrimSpace(addr), pid: cmd.Process.Pid}
}

// load counts messages: a request, or a message in a stream to the server.
func (s *etcdServer) load(h *harness) (l load) {
	res, err := http.Get(s.addr + "/metrics")
	h.must(err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "grpc_server_msg_received_total"):
			l.calls += value
		case name == "process_cpu_seconds_total":
			l.cpu = time.Duration(value * float64(time.Second))
		}
	}
	h.must(lines.Err())
	return l
}
