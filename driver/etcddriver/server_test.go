package etcddriver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/daemon"
)

func TestMain(m *testing.M) {
	servers := goleak.IgnoreAnyFunction("github.com/leasehold-go/leasehold/internal/test/daemon.Start.func1")
	goleak.VerifyTestMain(m, servers, goleak.Cleanup(func(code int) {
		all.End()
		os.Exit(code)
	}))
}

// all owns the server that the tests and the examples share.
var all = new(daemon.Package)

// member is a process of etcd.
type member struct {
	client, peer string // addresses
	dir          string
	args         []string
	process      *daemon.Process
}

// cluster is a cluster of etcd.
type cluster []*member

// startCluster starts members that no other test uses. LEASEHOLD_ETCD_SERVER is the path of
// another etcd.
func startCluster(tb testing.TB, n int, args ...string) cluster {
	tb.Helper()
	c := make(cluster, n)
	var initial []string
	for i := range c {
		c[i] = &member{client: freeAddress(tb), peer: freeAddress(tb), dir: tb.TempDir()}
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, c[i].peer))
	}
	for i, m := range c {
		m.args = append([]string{
			"--name", fmt.Sprint("m", i), "--data-dir", filepath.Join(m.dir, "data"), "--log-level", "warn", "--logger", "zap",
			"--listen-client-urls", "http://" + m.client, "--advertise-client-urls", "http://" + m.client,
			"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peer,
			"--initial-cluster", strings.Join(initial, ","), "--unsafe-no-fsync",
		}, args...)
		m.start(tb)
		tb.Cleanup(func() { m.process.Kill() })
	}
	c.await(tb)
	return c
}

func freeAddress(tb testing.TB) string {
	tb.Helper()
	host, port, err := address.Free()
	noError(tb, err)
	return net.JoinHostPort(host, fmt.Sprint(port))
}

func (m *member) start(tb testing.TB) {
	tb.Helper()
	program := cmp.Or(os.Getenv("LEASEHOLD_ETCD_SERVER"), "etcd")
	path, err := exec.LookPath(program)
	if err != nil {
		tb.Fatalf("%v: the tests need an etcd, from Debian's package etcd-server", err)
	}
	m.process, err = daemon.Launch(exec.Command(path, m.args...), filepath.Join(m.dir, "log")) //nolint:gosec // the server under test
	noError(tb, err)
}

// await waits until the cluster serves.
func (c cluster) await(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for _, m := range c { // gRPC waits a second after a refused connection
		eventually(tb, func() bool {
			conn, err := net.Dial("tcp", m.client)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
	}
	client := dial(tb, c.url())
	defer client.Close()
	for {
		try, stop := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(try, "x")
		stop()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			tb.Fatalf("etcd does not serve: %v\n%s", err, c[0].process.Log())
		}
	}
}

func (c cluster) endpoints() (list []string) {
	for _, m := range c {
		list = append(list, m.client)
	}
	return list
}

func (c cluster) url() string { return "etcd://" + strings.Join(c.endpoints(), ",") }

func dial(tb testing.TB, url string) *clientv3.Client {
	tb.Helper()
	cfg, _, err := parse(url)
	noError(tb, err)
	client, err := clientv3.New(cfg)
	noError(tb, err)
	return client
}

// openURL opens a store, which the test's end closes.
func openURL(tb testing.TB, url string, opts ...Option) *Driver {
	tb.Helper()
	d, err := Open(url, opts...)
	noError(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

var sharedServer = sync.OnceValue(func() string { return startCluster(all, 1)[0].client })

// ServerOfExamples returns the address of an etcd for examples, and for tests that do not disturb it.
func ServerOfExamples() string { return sharedServer() }

// shared returns the URL of a store of the test's own, on that etcd.
func shared(t testing.TB) string {
	return "etcd://" + sharedServer() + "/" + url.PathEscape(fmt.Sprintf("%s.%p", t.Name(), t))
}

var (
	noError    = ask.NoError
	eventually = await.Until
)
