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

	"github.com/leasehold-go/leasehold/internal/test/address"
)

// etcdCommand makes this program an etcd server, in a process of its own, so that
// its computing and allocating is not counted for its clients.
const etcdCommand = "etcd-server"

// serveEtcdIfAsked runs an etcd server if the arguments ask for it, and ends this process when standard
// input ends.
func serveEtcdIfAsked() {
	if len(os.Args) == 3 && os.Args[1] == etcdCommand {
		exit(new(harness).attempt(func() { serveEtcd(os.Args[2]) }))
	}
}

func serveEtcd(dir string) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "fatal"
	cfg.UnsafeNoFsync = true // Redis does not persist anything either
	client, peer := freeURL(), freeURL()
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e := need(embed.StartEtcd(cfg))
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		check(err)
	case <-time.After(30 * time.Second):
		check(errors.New("etcd is not ready"))
	}
	fmt.Println(client.String())
	_ = need(io.Copy(io.Discard, os.Stdin)) // then the process ends as it is: the data is not needed
}

func freeURL() url.URL {
	host, port, err := address.Free()
	check(err)
	return url.URL{Scheme: "http", Host: fmt.Sprintf("%s:%d", host, port)}
}

// etcdServer is one node, without fsync.
type etcdServer struct {
	addr string
	pid  int
}

// etcdServer starts etcd at the first call.
func (b *bench) etcdServer() *etcdServer {
	if b.etcd == nil {
		b.etcd = startEtcd(&b.lasting)
	}
	return b.etcd
}

func startEtcd(h *harness) *etcdServer {
	cmd := exec.Command(need(os.Executable()), etcdCommand, h.TempDir())
	cmd.Stderr = os.Stderr
	_ = need(cmd.StdinPipe()) // it ends with this process
	stdout := need(cmd.StdoutPipe())
	check(cmd.Start())
	h.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := need(bufio.NewReader(stdout).ReadString('\n'))
	return &etcdServer{addr: strings.TrimSpace(addr), pid: cmd.Process.Pid}
}

// load counts messages: a request, or a message in a stream to the server.
func (s *etcdServer) load() (l load) {
	res, err := http.Get(s.addr + "/metrics")
	check(err)
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
	check(lines.Err())
	return l
}
