//go:build unix

package quorumdriver_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// TestQuorum_KeepsItsPromisesOnRealServersThatSuffer plays random schedules in
// real time, over Redis servers that save each write and are frozen, killed, and
// restarted with and without their data.
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

// suffer implements victim: it always stops the server.
func (s redisServer) suffer(_ int, d time.Duration) string {
	s.Stop()
	time.Sleep(d)
	s.Cont()
	return "is stopped"
}
