package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/daemon"
)

// server is a nats-server of its own.
type server struct {
	t      testing.TB
	addr   string // host:port
	dir    string
	config string
	*daemon.Process
}

// serverBinary returns the path of nats-server, of the version in the module of the tools.
func serverBinary(t testing.TB) string {
	t.Helper()
	tools := filepath.Join("..", "..", "internal", "tools", "servers")
	mod, err := os.ReadFile(filepath.Join(tools, "go.mod"))
	noError(t, err)
	version := regexp.MustCompile(`nats-server/v2 (v\S+)`).FindSubmatch(mod)
	if version == nil {
		t.Fatalf("no version of nats-server in %s", tools)
	}
	cache, err := os.UserCacheDir()
	noError(t, err)
	path := filepath.Join(cache, "leasehold", "nats-server-"+string(version[1]))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the tests need nats-server %s: run internal/tools/servers/build: %v", version[1], err)
	}
	return path
}

// start starts a server with more lines of configuration.
func start(t testing.TB, more ...string) *server {
	t.Helper()
	host, port, err := address.Free()
	noError(t, err)
	s := newServer(t, host, port, more...)
	s.run()
	s.awaitJetStream(s.url())
	return s
}

func newServer(t testing.TB, host string, port int, more ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, addr: fmt.Sprintf("%s:%d", host, port), dir: dir, config: filepath.Join(dir, "config")}
	lines := append([]string{
		fmt.Sprintf("listen: %q", s.addr), fmt.Sprintf("server_name: n%d", port),
		fmt.Sprintf("jetstream { store_dir: %q, max_mem: 100MB, max_file: 1GB }", filepath.Join(dir, "data")),
	}, more...)
	noError(t, os.WriteFile(s.config, []byte(strings.Join(lines, "\n")), 0o600))
	t.Cleanup(func() {
		if s.Process == nil {
			return // it has not started
		}
		if s.Kill(); t.Failed() {
			t.Logf("%s: %s", s.addr, s.Log())
		}
	})
	return s
}

// run starts the process, on the data that it has.
func (s *server) run() {
	s.t.Helper()
	var err error
	s.Process, err = daemon.Launch(exec.Command(serverBinary(s.t), "-c", s.config), filepath.Join(s.dir, "log"))
	noError(s.t, err)
}

// lose removes the data of a server that was killed.
func (s *server) lose() { noError(s.t, os.RemoveAll(filepath.Join(s.dir, "data"))) }

func (s *server) url() string { return "nats://" + s.addr }

// awaitJetStream waits until JetStream answers.
func (s *server) awaitJetStream(url string) {
	s.t.Helper()
	eventually(s.t, func() bool {
		nc, err := nats.Connect(url)
		if err != nil { // of a user, or of a certificate, if the server is there
			return !errors.Is(err, nats.ErrNoServers) && !errors.As(err, new(*net.OpError))
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		noError(s.t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = js.AccountInfo(ctx)
		return err == nil || errors.Is(err, jetstream.ErrJetStreamNotEnabled)
	})
}

// cluster is three servers.
type cluster []*server

func startCluster(t testing.TB) cluster {
	t.Helper()
	hosts, ports, routes := make([]string, 3), make([]int, 3), make([]string, 3)
	for i := range hosts {
		var err error
		hosts[i], ports[i], err = address.Free()
		noError(t, err)
		routes[i] = fmt.Sprintf("%q", fmt.Sprintf("nats://%s:%d", hosts[i], ports[i]+10000))
	}
	c := make(cluster, 3)
	for i := range c {
		c[i] = newServer(t, hosts[i], ports[i], fmt.Sprintf("cluster { name: c, listen: %q, routes: [%s] }",
			fmt.Sprintf("%s:%d", hosts[i], ports[i]+10000), strings.Join(routes, ", ")))
		c[i].run()
	}
	c[0].awaitJetStream(c.url())
	return c
}

func (c cluster) url() string {
	addresses := make([]string, len(c))
	for i, s := range c {
		addresses[i] = s.addr
	}
	return "nats://" + strings.Join(addresses, ",")
}

// leader returns the server that leads the stream of a bucket, or nil.
func (c cluster) leader(t testing.TB, bucket string) *server {
	t.Helper()
	nc := connect(t, c.url())
	defer nc.Close()
	msg, err := nc.Request("$JS.API.STREAM.INFO.KV_"+bucket, nil, time.Second)
	var s state
	if err != nil || unpack(msg.Data, &s) != nil || s.Cluster == nil {
		return nil
	}
	i := slices.IndexFunc(c, func(one *server) bool { return "n"+one.addr[strings.LastIndex(one.addr, ":")+1:] == s.Cluster.Leader })
	if i < 0 {
		return nil
	}
	return c[i]
}

func (c cluster) awaitLeader(t testing.TB, bucket string) (leader *server) {
	t.Helper()
	eventually(t, func() bool {
		leader = c.leader(t, bucket)
		return leader != nil
	})
	return leader
}

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	var nc *nats.Conn
	eventually(t, func() (ok bool) {
		var err error
		nc, err = nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		return err == nil
	})
	t.Cleanup(nc.Close)
	return nc
}

var (
	all     = new(daemon.Package) // owns the server that the tests and the examples share
	shared  = sync.OnceValue(func() *server { return start(all) })
	buckets atomic.Int64
)

// one returns the URL of the shared server, and the name of a new bucket.
func one() (url, bucket string) { return shared().url(), fmt.Sprint("b", buckets.Add(1)) }

func TestMain(m *testing.M) {
	defer all.End()
	m.Run()
}

// openURL opens a store, with a timeout that is long enough for a busy machine unless the URL
// has one.
func openURL(t testing.TB, url string) *Driver {
	t.Helper()
	if !strings.Contains(url, "timeout=") {
		url += cmp.Or(map[bool]string{false: "?"}[strings.Contains(url, "?")], "&") + "timeout=20s"
	}
	d, err := Open(url)
	noError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// newStore returns a store in a bucket of its own, with a connection.
func newStore(t testing.TB) *Driver {
	t.Helper()
	url, bucket := one()
	return warm(t, openURL(t, url+"/"+bucket+"?create=true"))
}

// warm waits until the bucket exists and the driver is connected, and returns the driver.
func warm(t testing.TB, d *Driver) *Driver {
	t.Helper()
	eventually(t, func() bool {
		_, err := d.Acquire(t.Context(), mutex("warm-up", "w"))
		return err == nil
	})
	return d
}

func mutex(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: time.Hour, ConfirmWindow: time.Second}
}

func ticket(key, id string) driver.Request {
	req := mutex(key, id)
	req.TicketTTL = time.Hour
	return req
}

var (
	noError    = ask.NoError
	acquire    = ask.Acquire
	release    = ask.Release
	holds      = ask.Holds
	eventually = await.Until
	finds      = ask.Finds
)

// withoutJetStream takes JetStream out of a server's configuration.
func withoutJetStream(t testing.TB, s *server) {
	t.Helper()
	text, err := os.ReadFile(s.config)
	noError(t, err)
	noError(t, os.WriteFile(s.config, regexp.MustCompile(`(?m)^jetstream.*$`).ReplaceAll(text, nil), 0o600))
}
