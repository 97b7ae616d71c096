//go:build linux

package chaos_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
	"github.com/leasehold-go/leasehold/server"
)

// serveEnv makes a process of this binary a service. It names the store; listenEnv has the
// address.
const (
	serveEnv  = "LEASEHOLD_CHAOS_SERVE"
	listenEnv = "LEASEHOLD_CHAOS_LISTEN"
)

func serve() error {
	d, err := open(os.Getenv(serveEnv))
	if err != nil {
		return err
	}
	handler, err := server.New(d)
	if err != nil {
		return err
	}
	return http.ListenAndServe(os.Getenv(listenEnv), handler) //nolint:gosec // it is killed, not drained
}

// TestChaos_OnTheService kills and stops the HTTP service, and adds faults to the server
// behind it and to the network between them.
func TestChaos_OnTheService(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := respproxy.Start(t, store.Addr())
	s := startService(t, throughProxy(proxy))
	havoc := append(serverHavoc(store), proxyHavoc(proxy)...)
	havoc = append(havoc, restart(store), s.restarts(), s.restarts(), s.restarts(),
		lasts("stop the service", s.signal(syscall.SIGSTOP), s.signal(syscall.SIGCONT)),
		lasts("stop the service", s.signal(syscall.SIGSTOP), s.signal(syscall.SIGCONT)),
	)
	suffer(t, &chaos.Game{
		Label: "HTTP service on Redis", Rules: queue, Havoc: havoc,
		Stores: []string{"http://" + s.addr + "?timeout=1s"}, Look: store.URL(), Observe: waits(store),
	})
}

// service is a process that serves locks over HTTP.
type service struct {
	t           *testing.T
	store, addr string
	cmd         *exec.Cmd
}

func startService(t *testing.T, store string) *service {
	t.Helper()
	l, err := address.Listen()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, store: store, addr: l.Addr().String()}
	_ = l.Close()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s
}

// start returns when the service answers.
func (s *service) start() error {
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), serveEnv+"="+s.store, listenEnv+"="+s.addr)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return recovers(func() string {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
}

func (s *service) signal(sig syscall.Signal) func() {
	return func() { _ = s.cmd.Process.Signal(sig) }
}

// restarts kills the service, and starts it again after a while.
func (s *service) restarts() chaos.Havoc {
	return chaos.Havoc{Name: "kill the service", Do: func(rnd *rand.Rand) error {
		err := s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		time.Sleep(upTo(rnd, ttl))
		return errors.Join(err, s.start())
	}}
}
