package locktest_test

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/filedriver"
	"github.com/leasehold-go/leasehold/internal/postgrestest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/postgresdriver"
	"github.com/leasehold-go/leasehold/redisdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
)

// These tell a process that it is a contender of a play: the URL of the store, and the
// name of the play.
const (
	storeEnv = "LEASEHOLD_LOCKTEST_STORE"
	playEnv  = "LEASEHOLD_LOCKTEST_PLAY"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(storeEnv); url != "" {
		os.Exit(act(url, os.Getenv(playEnv)))
	}
	flag.Parse()
	// The cases wait most of the time, so more of them than cores may run.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestMemory(t *testing.T) {
	t.Parallel()
	store := memdriver.New()
	Run(t, Config{Open: func(testing.TB) driver.Driver { return store.Join() }, OneIn: 2})
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	Run(t, Config{
		Open:  func(tb testing.TB) driver.Driver { return onDirectory(tb, dir) },
		OneIn: 4, // the rule is that of the memory store
	})
}

func TestGoRedis(t *testing.T) {
	t.Parallel()
	onServer(t, redistest.Start(t), onGoRedis, 2)
}

func TestRueidis(t *testing.T) {
	t.Parallel()
	onServer(t, redistest.Start(t), onRueidis, 6) // the scripts are the same
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	url := postgrestest.Start(t).URL() + "&create=true"
	Run(t, Config{
		Open:  func(tb testing.TB) driver.Driver { return onPostgres(tb, url) },
		Flush: func(tb testing.TB) { flushPostgres(tb, url) },
		OneIn: 6, // likewise, and each connection is a process of the server's
	})
}

func onPostgres(tb testing.TB, url string) driver.Driver {
	tb.Helper()
	d, err := postgresdriver.Open(url)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// flushPostgres makes a server forget all locks.
func flushPostgres(tb testing.TB, url string) {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, strings.TrimSuffix(url, "&create=true"))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "TRUNCATE leasehold"); err != nil {
		tb.Fatal(err)
	}
}

func onServer(t *testing.T, server *redistest.Server, open func(testing.TB, string) driver.Driver, oneIn uint64) {
	Run(t, Config{
		Open:  func(tb testing.TB) driver.Driver { return open(tb, server.Addr()) },
		OneIn: oneIn,
		Flush: func(tb testing.TB) {
			if err := server.Client().FlushAll(context.Background()).Err(); err != nil {
				tb.Fatal(err)
			}
		},
		Ends: func(tb testing.TB) { endsByItself(tb, server) },
	})
}

func onDirectory(tb testing.TB, dir string) driver.Driver {
	tb.Helper()
	d, err := filedriver.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// onGoRedis returns a driver on a client of its own.
func onGoRedis(tb testing.TB, addr string) driver.Driver {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { _ = client.Close() })
	d, err := redisdriver.New(client)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func onRueidis(tb testing.TB, addr string) driver.Driver {
	tb.Helper()
	d, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// gone is what a server says of the time to live of a key that is not there.
const gone time.Duration = -2

// endsByItself checks that no lock is left, and that the fencing counters and
// records end by themselves: an hour after the last thing that they remember.
func endsByItself(tb testing.TB, server *redistest.Server) {
	tb.Helper()
	for _, key := range server.Keys(tb) {
		ttl := server.Client().PTTL(context.Background(), key).Val()
		if ttl == gone {
			continue // it has ended since it was listed
		}
		if !strings.Contains(key, "\x1f") || ttl <= 0 || ttl > time.Hour+2*time.Minute {
			tb.Errorf("left: %q, time to live %v", key, ttl)
		}
	}
}
