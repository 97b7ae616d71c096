//go:build unix

package quorumdriver_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestQuorum_KeepsItsPromisesOnRealServersThatSuffer plays random schedules in
// real time, over Redis servers that save everything and are frozen, killed, and
// brought back with their data and without.
func TestQuorum_KeepsItsPromisesOnRealServersThatSuffer(t *testing.T) {
	skip.Nightly(t, "schedules on real servers take minutes")
	t.Parallel()
	for range realSchedules {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newSchedule(t, seed, []quorumdriver.Option{quorumdriver.WithTimeout(time.Second)})
			for i := range s.victims {
				server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
				s.victims[i] = redisServer{server}
			}
			s.play()
			if violations := s.verdict(); violations != "" {
				t.Fatal(violations)
			}
		})
	}
}

// redisServer is a victim.
type redisServer struct{ *redistest.Server }

func (s redisServer) open(t testing.TB) driver.Driver {
	t.Helper()
	d, err := rueidisdriver.Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s redisServer) kill() { s.Kill() }
func (s redisServer) stop() { s.Stop() }
func (s redisServer) cont() { s.Cont() }

func (s redisServer) restart(empty bool) {
	if empty {
		_ = os.RemoveAll(filepath.Join(s.Dir(), "appendonlydir"))
	}
	s.Restart()
}

// suffer implements victim: being stopped is most of what there is.
func (s redisServer) suffer(_ int, d time.Duration) string {
	s.Stop()
	time.Sleep(d)
	s.Cont()
	return "is stopped"
}

func TestQuorum_Q1_OnRealServers(t *testing.T) {
	var servers []*redistest.Server
	var nodes []driver.Driver
	for range 5 {
		s := redistest.Start(t)
		servers, nodes = append(servers, s), append(nodes, redisServer{s}.open(t))
	}
	c, err := leasehold.New(open(t, nodes))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for down := range 6 {
		if down > 0 {
			servers[down-1].Kill()
		}
		start := time.Now()
		lease, err := c.Mutex(fmt.Sprint("k", down)).TryLock(t.Context())
		switch took := time.Since(start); {
		case down <= 2 && err != nil:
			t.Errorf("%d of 5 down: %v", down, err)
		case down > 2 && (!errors.Is(err, leasehold.ErrNoQuorum) || errors.Is(err, leasehold.ErrHeld)):
			t.Errorf("%d of 5 down: %v, want ErrNoQuorum", down, err)
		case down > 2 && took > timing.TryOutage+5*time.Second: // a request on its way to the server that was killed is unanswered
			t.Errorf("%d of 5 down: said after %v", down, took)
		}
		if down > 2 { // nothing is on its way any more
			start = time.Now()
			_, err := c.Mutex(fmt.Sprint("k", down)).TryLock(t.Context())
			if took := time.Since(start); !errors.Is(err, leasehold.ErrNoQuorum) || took > 5*time.Second {
				t.Errorf("%d of 5 down: said after %v: %v", down, took, err)
			}
		}
		if lease != nil {
			if err := lease.Release(); err != nil {
				t.Errorf("%d of 5 down: release: %v", down, err)
			}
		}
	}
}

func TestQuorum_Q2_BesideABlackHole(t *testing.T) {
	hole, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	black, err := rueidisdriver.Open("redis://" + hole.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, b := redistest.Start(t), redistest.Start(t)
	for _, s := range []*redistest.Server{a, b} { // in use before the third one went silent
		d := redisServer{s}.open(t)
		if err := d.(driver.Marker).Mark(t.Context(), driver.Mark{}, ""); err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	s := open(t, []driver.Driver{redisServer{a}.open(t), redisServer{b}.open(t), black})
	ask := asker{t, s}
	var took []time.Duration
	for i := range 300 {
		id := fmt.Sprint("a", i)
		start := time.Now()
		ask.acquire(id, driver.Granted)
		ask.release(id, driver.Released)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	t.Logf("median %v, longest %v", took[len(took)/2], took[len(took)-1])
	// To wait for the third would take its timeout.
	if median := took[len(took)/2]; median > quorumdriver.DefaultTimeout/4 {
		t.Errorf("lock and unlock take %v at the median", median)
	}
}
