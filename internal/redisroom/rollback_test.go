package redisroom_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestTokens_P4_RiseOnAServerThatComesBackWithOldData restarts a server from a
// copy that it wrote before the last grants, as a crash does without an
// append-only file, and as a replica that lags is when it takes over: its
// counters fall back, the tokens must not.
func TestTokens_P4_RiseOnAServerThatComesBackWithOldData(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(string) store) {
		ctx := context.Background()
		server := redistest.Start(t)
		g := &granter{T: t, store: open(server.URL()), last: make(map[string]int64)}
		g.rounds(5)
		if err := server.Client().Save(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		dump := filepath.Join(server.Dir(), "dump.rdb")
		copied, err := os.ReadFile(dump)
		if err != nil {
			t.Fatal(err)
		}
		g.rounds(20)
		server.Kill()
		if err := os.WriteFile(dump, copied, 0o600); err != nil {
			t.Fatal(err)
		}
		server.Restart()
		g.rounds(5)
	})
}

// granter takes locks and compares their tokens with earlier ones.
type granter struct {
	*testing.T
	store store
	last  map[string]int64 // by key
	id    int
}

func (g *granter) rounds(n int) {
	g.Helper()
	for range n {
		for _, key := range []string{"a", "b", "c"} {
			g.grant(key)
		}
	}
}

// grant takes the lock of a key, asks again, and releases it. A connection may be stale, so
// requests are repeated until they are answered.
func (g *granter) grant(key string) {
	g.Helper()
	ctx := context.Background()
	g.id++
	req := driver.Request{Key: key, ID: fmt.Sprint("lease-", g.id), TTL: 30 * time.Second}
	ask := func() (reply driver.Reply) {
		eventually(g.T, "an answer", func() bool {
			var err error
			reply, err = g.store.Acquire(ctx, req)
			return err == nil
		})
		return reply
	}
	reply := ask()
	if reply.State != driver.Granted || reply.Token <= g.last[key] {
		g.Errorf("%s: %+v follows token %d", key, reply, g.last[key])
	}
	g.last[key] = reply.Token
	if again := ask(); again.Token != reply.Token {
		g.Errorf("asked again: %+v; it had token %d", again, reply.Token)
	}
	eventually(g.T, "a release", func() bool {
		_, err := g.store.Release(ctx, driver.Ref{Key: key, ID: req.ID})
		return err == nil
	})
}
