//go:build linux

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestChaos_OnASentinel uses a primary and a replica that lags: a failover may
// lose acknowledged changes, so that exclusion may fail around it. All other promises must
// hold, and tokens must rise.
func TestChaos_OnASentinel(t *testing.T) {
	t.Parallel()
	s := &watched{redistest.StartSentinel(t)}
	// With this limit, a busy machine alone seldom causes a failover.
	if err := tell(s.set.Sentinel, "SENTINEL", "SET", redistest.PrimaryName, "down-after-milliseconds", "1500"); err != nil {
		t.Fatal(err)
	}
	addr := s.set.Sentinel.Addr()
	suffer(t, arena{
		label: "primary and replica with Sentinel", rules: queue, havoc: s.havoc(history.ForgetsSome),
		stores: []string{
			fmt.Sprintf("redis+sentinel://%s/?master=%s&timeout=%v", addr, redistest.PrimaryName, tryTimeout),
			viaGoRedis + "redis+sentinel://" + addr,
		},
		observe: failovers([]*redistest.Server{s.set.Primary, s.set.Replica}, s.heal),
	})
}

// failovers records every change of roles, also if a busy machine has caused it. The record
// begins before the earliest possible start of the change and ends when all nodes are healthy.
func failovers(servers []*redistest.Server, heal func() error) func(context.Context, func(history.Record)) {
	const before = 6 * time.Second
	return func(ctx context.Context, note func(history.Record)) {
		last := make(map[*redistest.Server]string)
		for ok := true; ok; ok = timing.Sleep(ctx, 200*time.Millisecond) {
			changed := false
			for _, s := range servers {
				role := replication(s)["role"]
				changed = changed || role != "" && last[s] != "" && role != last[s]
				if role != "" {
					last[s] = role
				}
			}
			if changed {
				since := chaos.Now() - int64(before)
				_ = heal() // the next fault reports its error
				note(history.Record{At: chaos.Now(), Since: since, What: history.Fault, Note: "failover seen", Forgets: history.ForgetsSome})
			}
		}
	}
}

// watched is a primary and a replica that change roles.
type watched struct{ set *redistest.Sentinel }

// roles returns the present primary and replica.
func (w *watched) roles() (primary, replica *redistest.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	at, err := w.set.Sentinel.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.PrimaryName).StringSlice()
	if err == nil && len(at) == 2 && strings.Join(at, ":") == w.set.Replica.Addr() {
		return w.set.Replica, w.set.Primary
	}
	return w.set.Primary, w.set.Replica
}

// heal waits until the replica follows the primary again.
func (w *watched) heal() error {
	return recovers(func() string {
		primary, replica := w.roles()
		if p := replication(primary); p["role"] != "master" || !strings.Contains(p["slave0"], "state=online") {
			return fmt.Sprintf("primary %s: %v", primary.Addr(), p)
		}
		if r := replication(replica); r["role"] != "slave" || r["master_link_status"] != "up" {
			return fmt.Sprintf("replica %s: %v", replica.Addr(), r)
		}
		return ""
	})
}

// recovers waits until wrong returns no problem.
func recovers(wrong func() string) error {
	const within = 90 * time.Second
	problem := ""
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if problem = wrong(); problem == "" {
			return nil
		}
	}
	return fmt.Errorf("not healthy after %v: %s", within, problem)
}

// replication returns the fields of section "replication" of INFO, or an empty map if the
// server does not answer.
func replication(s *redistest.Server) map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text, _ := s.Client().Info(ctx, "replication").Result()
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// havoc returns the faults of the three servers. forgets is the kind of data that a failover
// loses.
func (w *watched) havoc(forgets string) []chaos.Havoc {
	primary := picked(func(*rand.Rand) (*redistest.Server, error) {
		p, _ := w.roles()
		return p, nil
	}, w.heal)
	replica := picked(func(*rand.Rand) (*redistest.Server, error) {
		_, r := w.roles()
		return r, nil
	}, w.heal)
	sentinel := picked(func(*rand.Rand) (*redistest.Server, error) { return w.set.Sentinel, nil }, w.heal)
	// kill waits for a failover for a limited time: a sentinel that was stopped or starved
	// starts no failover for half a minute, and then rejects a replica that has been
	// disconnected for that long. In that case the primary restarts, without data.
	kill := func(_ *rand.Rand, s *redistest.Server) error {
		s.Kill()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if now, _ := w.roles(); now != s {
				break
			}
		}
		s.Restart()
		return nil
	}
	failover := func(*rand.Rand, *redistest.Server) error {
		// The sentinel refuses during another failover, and shortly after it.
		_ = tell(w.set.Sentinel, "SENTINEL", "FAILOVER", redistest.PrimaryName)
		time.Sleep(ttl)
		return nil
	}
	return append(commands(primary),
		primary("failover by command", forgets, failover),
		primary("kill the primary", forgets, kill),
		primary("stop the primary", forgets, stopFor),
		replica("stop the replica", "", stopFor),
		sentinel("stop the sentinel", "", stopFor),
	)
}
